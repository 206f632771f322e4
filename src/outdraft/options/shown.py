"""How a user's value, or a stranger's exception, is printed in an error message, whatever object it is."""

from itertools import islice
from typing import Any

from outdraft.options.foreign import anything_but_an_interrupt

WIDTH = 80


def shown(value: Any) -> str:
    """`repr(value)` on one line, cut where it is long; the type's name where an object cannot be shown."""
    if type(value) in (list, str, bytes):
        value = value[:WIDTH]  # more would be cut from the text
    elif type(value) is dict:
        value = dict(islice(value.items(), WIDTH))
    try:
        text = " ".join(repr(value).split("\n"))
    except anything_but_an_interrupt():  # a number of 5000 digits, or a stranger's __repr__
        text = f"<a value of type {type(value).__name__}>"
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def told(error: BaseException) -> str:
    """Type and text, as in "ValueError: out of range"; the type alone where the error cannot say its text."""
    try:
        return f"{type(error).__name__}: {error}"
    except anything_but_an_interrupt():  # a stranger's __str__
        return type(error).__name__
