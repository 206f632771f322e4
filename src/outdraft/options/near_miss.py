"""The known name that a user probably meant by an unknown one, for the hint "did you mean ...?" of an error."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_LONGEST = 100  # characters that are compared


def near_miss(word: Any, known: Iterable[str]) -> str:
    """', did you mean ...?' or nothing."""
    close = get_close_matches(word[:_LONGEST], list(known), n=1, cutoff=0.6) if isinstance(word, str) else []
    return f", did you mean {close[0]!r}?" if close else ""
