"""Rules of a grammar for calls: the text around the arguments is fixed, and these have the schema of the function.

    call    : call_0 | call_1
    call_0  : "{\"name\": \"weather\", \"arguments\": " args_0 "}"       forced, and so drafted for free
    args_0  : %json {...}                                                a schema of its own, so that $ref holds

Notation: https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

import json
from collections.abc import Callable
from collections.abc import Sequence as Seq

from outdraft.codecs.grammar.spelling import WHITESPACE, read_schema
from outdraft.options.errors import RequestError
from outdraft.server.errors import ApiError
from outdraft.server.parsers.tool_format import FunctionAsked


def literal(text: str) -> str:
    """A text as the grammar quotes it."""
    return json.dumps(text)


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
        told = str(error).replace("json of structured_outputs", f"the schema of {function.name}")
        raise ApiError(400, told, param=f"tools.{place}.function.parameters") from error
    if "$ref" not in schema:
        schema = {**schema, "type": "object"}
    return {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}}
