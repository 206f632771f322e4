"""What the options of a plug-in mean and which values they take, read where they are declared and checked.

The meaning is the comment beside the field, or above it; the range is what the options' own check says of NaN, which
lies in no range. So neither can differ from the code. Data in: a dataclass of options; data out: words for people.
"""

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, fields
from math import nan
from textwrap import dedent
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from outdraft.options.checked import in_words
from outdraft.options.errors import ConfigError

_LEADS = ("must be ", "need ", "choose ", "it is ", "it must be ")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionWords:
    """One option of a plug-in as pages and errors print it."""

    name: str
    meaning: str  # one sentence; "" where the source cannot be read, or a plug-in of another package has no comment
    values: str  # "a whole number, between 1 and 4096"
    aliases: tuple[str, ...] = ()


def option_words(options: type[Any]) -> list[OptionWords]:
    """Every field of a dataclass of options, in order."""
    meanings, hints = _meanings(options), get_type_hints(options)
    return [
        OptionWords(
            name=one.name,
            meaning=_sentence(meanings.get(one.name, "")),
            values=_values(options, one.name, hints[one.name]),
            aliases=tuple(one.metadata.get("aliases", ())),
        )
        for one in fields(options)
    ]


def _meanings(options: type[Any]) -> dict[str, str]:
    """Field -> its comment; a class's own comment stands before that of the class which it extends."""
    found: dict[str, str] = {}
    for one in reversed(options.__mro__[:-1]):
        try:
            source = dedent(inspect.getsource(one))
        except (OSError, TypeError):  # made at run time, or installed without its source
            continue
        found |= dict(_comments(source))
    return found


def _comments(source: str) -> Iterator[tuple[str, str]]:
    """The comments of each annotated field: all that stand on its lines, or else those right above it."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    comments = {one.start[0]: one.string.lstrip("# ").strip() for one in tokens if one.type == tokenize.COMMENT}
    lines = source.splitlines()
    for body in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if not isinstance(body, ast.AnnAssign) or not isinstance(body.target, ast.Name):
            continue
        said = [comments[row] for row in range(body.lineno, (body.end_lineno or body.lineno) + 1) if row in comments]
        row = body.lineno - 1
        while not said[:1] and row in comments and lines[row - 1].lstrip().startswith("#"):
            row -= 1
        said = said or [comments[above] for above in range(row + 1, body.lineno)]
        if said:
            yield body.target.id, " ".join(said)


def _sentence(words: str) -> str:
    """With a capital and a full stop."""
    if not words:
        return ""
    return words[0].upper() + words[1:] + ("" if words.endswith(".") else ".")


def _values(options: type[Any], name: str, hint: Any) -> str:
    """The type in words, and the range if the check knows one."""
    told = in_words(hint)
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    numbers = {part for part in parts if part in (int, float)}
    lists = any(get_origin(part) is not None and set(get_args(part)) <= {int, float, ...} for part in parts)
    limit = _limit(options, name, (nan,) if lists else nan) if numbers or lists else ""
    return f"{told}, {limit}" if limit else told


def _limit(options: type[Any], name: str, value: Any) -> str:
    try:
        options(**{name: value})
    except ConfigError as error:
        limit = str(error).partition(": ")[2]
        for lead in _LEADS:
            limit = limit.removeprefix(lead)
        return limit
    except Exception:  # a check that computes with the value before it looks at it
        return ""
    return ""
