"""A form as llguidance's grammar text, small enough to be compiled, or refused, in some tens of milliseconds.

Data in: what the user asks for; data out: the grammar's text. What is refused here is refused by its size or shape,
before anything is compiled; what the text means is the library's to check (`grammar/compile.py`). Of an object's names
what the library would write none of, or get stuck in, is refused too: it writes the fields of `properties` in their
order, and then names that patterns or `additionalProperties` allow, of which it does not know whether they have been
written.
"""

import json
import re
import sys
from collections.abc import Mapping
from math import prod
from typing import Any

from outdraft.codecs.grammar.counting import MOST, TooDeep
from outdraft.codecs.grammar.counting.lark import count_lark
from outdraft.codecs.grammar.counting.regex import count_regex
from outdraft.codecs.grammar.counting.schema import count_schema
from outdraft.codecs.grammar.exact_numbers import check_numbers
from outdraft.codecs.grammar.library import llguidance
from outdraft.options.errors import RequestError
from outdraft.options.shown import shown
from outdraft.options.structured import StructuredOutputsParams

MOST_CHARACTERS = 1 << 16  # of a schema, a regex, a grammar, or all choices together
MOST_LETTERS = 1_000_000  # with all repetitions and references multiplied out
MOST_LEVELS = 48  # of tables and lists inside each other
MOST_TABLES = 600  # of a schema: about one for each field and each list
MOST_CASES = 1 << 8  # that allOf makes of the alternatives in its entries
MOST_JOINED = 8  # patterns that one text must match at once: compiling takes time exponential in their number
# Between the parts of JSON: a blank, or a line end and its indentation. Where any number of blanks may stand, a weak
# model writes them to the last token.
WHITESPACE = r" |\n[ \t]{0,40}"
_UNFORCED = '\n%llguidance {"no_forcing": true}\n'  # the library looks no further than a token (`forced_text.py`)
_BLANK_LINES = re.compile(r"\n\s++")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*+"?+|/(?:[^/\\\n]|\\.)*+/?+')  # without a step back, closed or not
_CODE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(?s:.))")  # of GBNF, a character by its number
MOST_OPTIONAL = 250  # fields of one object: compiling takes time quadratic in their number
_LETTERS = re.compile(r"\^[^*+?{}.\[\]\\^$]{1,64}\$")  # a pattern of finitely many names, matched in no time


def spell(form: StructuredOutputsParams) -> str:
    """The grammar's text. Raises `RequestError` for a form that is too large, too deep or no JSON."""
    try:
        return _spelled(form)
    except TooDeep as error:
        raise RequestError(
            f"{form.kind} of structured_outputs has rules, brackets or references in each other, too many levels deep: "
            "flatten it"
        ) from error
    except ValueError as error:  # of the library: numbers that JSON does not have, halves of characters
        raise RequestError(f"{form.kind} of structured_outputs cannot be read: {error}") from error


def _spelled(form: StructuredOutputsParams) -> str:
    given = getattr(form, form.kind)
    match form.kind:
        case "json" | "json_object":
            text = f"start: %json {json.dumps(laid_out(form))}"
        case "regex":
            _require_few("regex", count_regex(_short("regex", given)))
            text = f"start: /{slashed(given)}/"
        case "choice":
            _short("choice", "".join(given))
            text = "start: CHOICE\nCHOICE: " + " | ".join(map(json.dumps, given))
        case _:
            text = _lark(_short("grammar", given))
    return text + _UNFORCED


def laid_out(form: StructuredOutputsParams) -> dict[str, Any]:
    """The schema of the form, with what may stand between the parts of JSON."""
    schema = read_schema(form.json) if form.json is not None else {"type": "object"}
    blanks = WHITESPACE if form.whitespace_pattern is None else form.whitespace_pattern
    _require_few("whitespace_pattern", count_regex(_short("whitespace_pattern", blanks)))
    layout: dict[str, Any] = {"whitespace_pattern": blanks}
    if form.disable_any_whitespace:
        layout = {"whitespace_flexible": False}
    others = schema.get("x-guidance")
    return {**schema, "x-guidance": {**(others if isinstance(others, dict) else {}), **layout}}


def slashed(regex: str) -> str:
    """A regex as it stands between slashes in Lark."""
    return str(llguidance().regex_to_lark(regex, ""))


def read_schema(schema: str | Mapping[str, Any]) -> Any:
    """A schema as Python's values. Raises `RequestError` for one that is no table, or beyond the limits."""
    if isinstance(schema, str):
        try:
            schema = json.loads(_short("json", schema))
        except (ValueError, RecursionError) as error:
            raise RequestError(f"json of structured_outputs is no JSON: {error}") from error
    if not isinstance(schema, dict):
        raise RequestError(f"json of structured_outputs must be a schema, a table, not {type(schema).__name__}")
    _measure(schema)
    check_numbers(schema)
    _require_few("json", count_schema(schema))
    return schema


def _measure(schema: dict[str, Any]) -> None:
    """Raise `RequestError` for a schema beyond the limits; it is read no further than these."""
    size = joined = tables = 0
    patterns: set[str] = set()
    todo: list[tuple[Any, int]] = [(schema, 1)]
    while todo:
        value, level = todo.pop()
        if level > MOST_LEVELS:
            raise RequestError(f"json of structured_outputs has parts more than {MOST_LEVELS} levels deep: flatten it")
        size += 4 * len(value) if isinstance(value, dict | list | tuple) else 2
        if size > MOST_CHARACTERS:
            break
        if isinstance(value, dict):
            tables += 1
            check_names(value)
            entries = value["allOf"] if isinstance(value.get("allOf"), list) else []
            joined += len(entries)
            if prod(map(_num_cases, entries[:MOST_CASES])) > MOST_CASES:
                raise RequestError(
                    f"json of structured_outputs joins by allOf what has more than {MOST_CASES} cases by anyOf and "
                    "oneOf: write out the cases that are meant"
                )
            joined += "$ref" in value and "pattern" in value
            if isinstance(value.get("pattern"), str):
                patterns.add(value["pattern"])
            size += sum(len(str(key)) for key in value)
            todo += [(one, level + 1) for one in value.values()]
        elif isinstance(value, list | tuple):
            todo += [(one, level + 1) for one in value]
        elif isinstance(value, str):
            size += len(value)
        elif value is not None and not isinstance(value, bool | int | float):
            raise RequestError(f"json of structured_outputs holds {type(value).__name__}, which JSON does not know")
    if size > MOST_CHARACTERS:
        raise RequestError(f"json of structured_outputs has more than {MOST_CHARACTERS} characters: shorten the schema")
    if tables > MOST_TABLES:
        raise RequestError(f"json of structured_outputs has {tables} tables: {MOST_TABLES} are the most")
    if min(joined, len(patterns)) > MOST_JOINED:
        raise RequestError(
            f"json of structured_outputs joins {joined} schemas by allOf and has {len(patterns)} patterns: a text that "
            f"must match more than {MOST_JOINED} patterns at once cannot be compiled; join them in one pattern"
        )


def _num_cases(entry: Any) -> int:
    listed = (entry.get(name) for name in ("anyOf", "oneOf")) if isinstance(entry, dict) else ()
    return prod(len(one) for one in listed if isinstance(one, list) and one)


def _require_few(name: str, count: int) -> None:
    if count > MOST_LETTERS:
        told = f"{count}" if count < MOST else f"more than {MOST}"
        raise RequestError(
            f"{name} of structured_outputs has {told} letters, its repetitions multiplied out: {MOST_LETTERS} are the "
            "most; lower the numbers of repetitions"
        )


def _short(name: str, text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise RequestError(f"{name} of structured_outputs has {len(text)} characters: {MOST_CHARACTERS} are the most")
    return text


def _lark(grammar: str) -> str:
    """The grammar in the library's Lark notation. GBNF (llama.cpp's) is recognised by its `::=` and rewritten."""
    bare = _QUOTED.sub("", grammar)
    joined = max(bare.count("&"), min(grammar.count('"pattern"'), grammar.count('"allOf"') * (MOST_JOINED + 1)))
    if joined > MOST_JOINED:
        raise RequestError(f"grammar of structured_outputs joins {joined} patterns by &: {MOST_JOINED} are the most")
    if "::=" not in bare:
        _require_few("grammar", count_lark(grammar, _count_inside))
        return grammar
    from llguidance.gbnf_to_lark import gbnf_to_lark, is_lark_syntax

    try:
        short = _BLANK_LINES.sub("\n", grammar)  # as it takes time quadratic in their number
        lark = short if is_lark_syntax(short) else str(gbnf_to_lark(_CODE.sub(_character, short)))
    except Exception as error:  # the library raises what comes
        raise RequestError(f"grammar of structured_outputs is taken for GBNF, and cannot be read: {error}") from error
    _require_few("grammar", count_lark(lark, _count_inside))
    return lark


def _character(found: re.Match[str]) -> str:
    """A character in place of its number, as the library drops the number's zeros; ASCII as `\\xHH`, which it keeps."""
    if not (digits := found[1] or found[2]):
        return found[0]
    code = int(digits, 16)
    if code > sys.maxunicode or 0xD800 <= code < 0xE000:
        raise ValueError(f"{found[0]} is no character: write the number of a whole one, as in \\U0001F600")
    return chr(code) if code > 127 else f"\\x{code:02x}"


def _count_inside(schema: Any) -> int:
    """Of a schema that stands in a grammar, and that has to be within the same limits."""
    return count_schema(read_schema(schema)) if isinstance(schema, dict) else 1


def check_names(schema: Mapping[str, Any]) -> None:
    """Raise `RequestError`, with the keyword and its value, for one table of a schema."""
    named = schema.get("properties")
    named = set(named) if isinstance(named, Mapping) else set()
    required = schema.get("required")
    required = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    if (optional := len(named - required)) > MOST_OPTIONAL:
        raise _refusal(
            f"has an object with {optional} optional fields: {MOST_OPTIONAL} are the most; make those required that "
            "always come"
        )
    least, most = (_number(schema.get(name)) for name in ("minProperties", "maxProperties"))
    if most is not None and most < max(len(required), least or 0):
        raise _refusal(
            f"has maxProperties={most:g}, less than minProperties={least or 0:g} or the {len(required)} required fields"
        )
    if (least is not None and least > len(required | named) + 1) or ((least or 0) > len(required) + 1 and not named):
        raise _refusal(
            f"has minProperties={least:g}, with {len(required)} required fields: names that a pattern gives may be "
            "written twice; name these fields, and require them"
        )
    if schema.get("additionalProperties") is False:
        _check_patterns(schema.get("patternProperties"), named | required)


def _check_patterns(patterns: Any, named: set[str]) -> None:
    """Where all names that a pattern gives are fields by name already, nothing could follow a comma."""
    if not isinstance(patterns, Mapping) or not patterns:
        return
    for pattern in patterns:
        if not (_LETTERS.fullmatch(pattern) and any(re.search(pattern, name) for name in named)):
            return
    raise _refusal(
        f"has patternProperties {shown(next(iter(patterns)))} beside a field of this name: say in properties what it "
        "is, and leave the pattern out"
    )


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _refusal(told: str) -> RequestError:
    return RequestError(f"json of structured_outputs {told}")
