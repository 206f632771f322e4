"""Letters of a grammar in the library's Lark notation, with its repetitions and its rules multiplied out.

    start: word{3} | NUMBER~2..5        3 * count(word) + 5 * count(NUMBER)
    word: /[a-z]{1,9}/                  9

A rule that stands in itself counts once there. What is no grammar is the library's to refuse.
"""

import json
import re
from collections.abc import Callable
from typing import Any

from outdraft.codecs.grammar.counting import MOST, TooDeep
from outdraft.codecs.grammar.counting.regex import count_regex

MOST_LEVELS = 128  # of rules that stand in each other, and of brackets: the library walks down them with its stack
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|//[^\n]*|\#[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*+"?+i?)
      | (?P<regex>/(?:[^/\\\n]|\\.)*+/?+[imslux]*)
      | (?P<times>\{\s*+(?P<least>\d*+)\s*+,?+\s*+(?P<most>\d*+)\s*+\}|~\s*+(?P<from>\d++)(?:\s*+\.\.\s*+(?P<to>\d++))?)
      | (?P<json>%(?:json|regex|lark)\b\s*)
      | (?P<name>[!?]?_?[A-Za-z][\w]*|_\w*)
      | (?P<line>\n)
      | (?P<other>(?s:.))""",
    re.VERBOSE,
)


_HEAD = re.compile(r"[\w.]*(?:::\w+|\[[^\]\n]*\]|\{[\w, ]*\})?\s*:(?!:)")  # of a rule, behind the start of its name


def count_lark(grammar: str, count_json: Callable[[Any], int]) -> int:
    """`count_json`: of the schema behind `%json`. Raises `TooDeep`; takes time linear in the grammar's length."""
    rules = _read_rules(grammar, count_json)
    known: dict[str, tuple[int, int]] = {}

    def of_rule(name: str, level: int) -> tuple[int, int]:
        """Its count, and how many levels of rules stand in it."""
        if name not in known:
            known[name] = 1, 0  # where it stands in itself
            count = depth = 0
            for part, times in rules.get(name, ()) if level < MOST_LEVELS else ():
                one, below = of_rule(part, level + 1) if isinstance(part, str) else (part, 0)
                count, depth = count + one * times, max(depth, below)
            known[name] = min(MOST, max(1, count)), depth + 1
        if level + known[name][1] > MOST_LEVELS:
            raise TooDeep
        return known[name]

    return max((of_rule(name, 0)[0] for name in rules), default=1)


def _read_rules(grammar: str, count_json: Callable[[Any], int]) -> dict[str, list[tuple[str | int, int]]]:
    """Of each rule its parts, a rule's name or a number of letters, and how often each comes at most."""
    rules: dict[str, list[tuple[str | int, int]]] = {"": []}
    parts = rules[""]
    opened: list[int] = []  # where the parts of the brackets begin that are open
    newest = 0  # where the parts begin that a repetition would be of
    place, is_start_of_line = 0, True
    while place < len(grammar):
        found = _TOKEN.match(grammar, place)
        assert found is not None
        kind, place = found.lastgroup, found.end()
        if kind in ("most", "to", "least", "from"):
            kind = "times"
        if kind == "space":
            continue
        head = _HEAD.match(grammar, place) if kind == "name" and is_start_of_line else None
        is_start_of_line = kind == "line"
        if head is not None:
            parts, place, opened = rules.setdefault(found[0].lstrip("!?"), []), head.end(), []
            newest = len(parts)
        elif kind == "times":
            times = max(1, *(int((found[one] or "0")[:18]) for one in ("least", "most", "from", "to")))
            parts[newest:] = [(part, min(MOST, many * times)) for part, many in parts[newest:]]
        elif kind == "other" and found[0] in "([":
            opened.append(len(parts))
            if len(opened) > MOST_LEVELS:
                raise TooDeep
        elif kind == "other" and found[0] in ")]":
            newest = opened.pop() if opened else newest
        elif kind in ("text", "regex", "json", "name"):
            newest = len(parts)
            if kind == "json":
                value, place = _value(grammar, place)
                parts.append((count_json(value), 1))
            else:
                parts.append((_count(kind, found[0]), 1))
    return rules


def _count(kind: str, text: str) -> str | int:
    if kind == "name":
        return text
    return max(1, len(text) - 2) if kind == "text" else count_regex(text[1:].rpartition("/")[0])


def _value(grammar: str, place: int) -> tuple[Any, int]:
    """A value of JSON that begins there, and where it ends."""
    try:
        return json.JSONDecoder().raw_decode(grammar, place)
    except (ValueError, RecursionError):  # the library says what is wrong with it
        return None, place
