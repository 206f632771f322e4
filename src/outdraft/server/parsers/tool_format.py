"""What a file of `parsers/tools` offers: how calls are read from a text, and the grammar that enforces them.

In the grammar the text around the arguments is fixed, and these have the schema of the function:

    call    : call_0 | call_1
    call_0  : "{\"name\": \"weather\", \"arguments\": " args_0 "}"       forced, and so drafted for free
    args_0  : %json {...}                                                a schema of its own, so that $ref holds

Notation: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import json
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, ClassVar

from outdraft.codecs.grammar.spelling import WHITESPACE, read_schema
from outdraft.options.errors import RequestError
from outdraft.server.errors import wrong_field
from outdraft.server.parsers.call_reader import CallReader


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAsked:
    """A function that the model may call, and the schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]


class ToolFormat:
    """One way in which models write calls."""

    name: ClassVar[str]
    marks: ClassVar[tuple[str, ...]]  # that a tokenizer may keep as special tokens, which are no text otherwise
    opening: ClassVar[str] = ""  # behind the prompt of an enforced call, as no grammar can write a special token
    reads: ClassVar[type[CallReader]]  # one answer

    def fits(self, template: str) -> bool:
        """Whether a chat template was written for it."""
        raise NotImplementedError

    def calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str:
        """A grammar in Lark's notation whose rule `calls` is one call, or one or more if `many`."""
        raise NotImplementedError

    def perhaps_calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str | None:
        """A grammar whose rule `calls` is any text in which every call is valid; None where no grammar can say so."""
        return None

    def call_id(self, given: str) -> str:
        """The id of an earlier call as the chat template wants it."""
        return given


def literal(text: str) -> str:
    """A text as the grammar quotes it."""
    return json.dumps(text)


def further(what: str, between: str, *, many: bool) -> str:
    """The grammar of more `what` behind a call, each after `between`; empty unless `many`."""
    return f"({literal(between)} {what})*" if many else ""


def call_rules(functions: Seq[FunctionAsked], around: Callable[[str], tuple[str, str]]) -> str:
    """Rules of which `call` is a call of one of the functions. `around`: a name -> what stands before and behind its
    arguments. Raises `ApiError` for a schema that cannot be compiled because of its size."""
    rules = ["call: " + " | ".join(f"call_{i}" for i in range(len(functions)))]
    for i, one in enumerate(functions):
        before, behind = around(one.name)
        rules.append(f"call_{i}: {literal(before)} args_{i} {literal(behind)}")
        rules.append(f"args_{i}: %json {json.dumps(_of_arguments(one, i))}")
    return "\n".join(rules)


def _of_arguments(function: FunctionAsked, place: int) -> dict[str, object]:
    """Arguments are an object; without a schema there are none."""
    schema = dict(function.parameters) or {"properties": {}, "additionalProperties": False}
    try:
        read_schema(schema)
    except RequestError as error:
        message = str(error).replace("json of structured_outputs", f"the schema of {function.name}")
        raise wrong_field(message, f"tools.{place}.function.parameters") from error
    if "$ref" not in schema:
        schema = {**schema, "type": "object"}
    return {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}}
