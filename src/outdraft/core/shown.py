"""A value that somebody gave, as it stands in an error message: on one line, short, whatever it is."""

from typing import Any

WIDTH = 80


def shown(value: Any) -> str:
    """`repr(value)`, cut where it is long; the type's name where an object cannot be shown."""
    try:
        text = " ".join(repr(value).split("\n"))
    except Exception:  # a number of 5000 digits, or a stranger's __repr__
        text = f"<a value of type {type(value).__name__}>"
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
