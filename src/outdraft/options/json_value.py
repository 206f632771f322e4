"""A JSON value in a text that a client or a model wrote."""

import json
from typing import Any


def read_json(text: str) -> Any:
    """The value, or None for what is no JSON; numbers that JSON does not have (NaN) are none."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
