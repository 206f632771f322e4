"""A drafter made of drafters: cascades, merged trees, routing. The inner ones are named as users name any drafter.

    {"method": "draft_model", "model": "path"}      or only "ngram"

Data in: such a description and the door to the target; data out: the drafter that it names, and its method. A composed
drafter calls the inner one's four verbs; it imports none of its siblings.
"""

from collections.abc import Mapping
from typing import Any

from outdraft.core.drafter import Drafter
from outdraft.core.errors import ConfigError
from outdraft.core.registry import Method, find, make_options
from outdraft.core.target import TargetPort


def build_nested(described: str | Mapping[str, Any], port: TargetPort) -> tuple[Drafter, Method]:
    """Build the drafter that `described` names. Raises `ConfigError` naming what is wrong with the description."""
    if isinstance(described, str):
        described = {"method": described}
    if "method" not in described:
        raise ConfigError(f"{dict(described)!r} names no 'method'; for example {{'method': 'ngram'}}")
    method = find("drafter", described["method"])
    options = {key: value for key, value in described.items() if key != "method"}
    drafter: Drafter = method.build(make_options(method, options), port)
    return drafter, method
