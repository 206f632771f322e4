"""The grammar of a chat's answer, where several things bind it: thoughts, calls of functions, a form.

start: thought calls                   a call is required
start: thought (calls | answer)        a call, or an answer of the form
start: thought answer                  a form, behind a thought that has none
"""

import json

from outdraft.codecs.grammar.spelling import laid_out, slashed
from outdraft.options.structured import StructuredOutputsParams
from outdraft.server.errors import ApiError
from outdraft.server.parsers.call_grammar import literal
from outdraft.server.parsers.thinking import ThinkingReader
from outdraft.server.parsers.tool_format import FunctionAsked, ToolFormat
from outdraft.server.tool_choice import ToolsAsked


def bound(
    tools: ToolsAsked | None, form: StructuredOutputsParams | None, thinking: ThinkingReader | None
) -> StructuredOutputsParams | None:
    """What binds the answer; None: nothing does. `thinking`: a reader that has read nothing of it.

    Raises `ApiError` for what cannot go together.
    """
    thinks = thinking is not None and thinking.may_think
    if tools is None or not (tools.is_required or tools.is_strict or form is not None):
        if form is None or not thinks:
            return form
        rest, rules = "answer", [_answer(form)]
    else:
        rest, rules = _with_calls(tools.format, tools, form)
    if thinking is not None and thinks:
        rest, rules = f"thought ({rest})", [*rules, thinking.rules()]
    return StructuredOutputsParams(grammar="\n".join([f"start: {rest}", *rules]) + "\n")


def _with_calls(written: ToolFormat, tools: ToolsAsked, form: StructuredOutputsParams | None) -> tuple[str, list[str]]:
    functions: tuple[FunctionAsked, ...] = tools.functions
    if tools.is_required:
        if form is not None:
            raise ApiError(400, "tool_choice asks for a call, and response_format for another text: leave one out",
                           param="tool_choice")  # fmt: skip
        return "calls", [written.calls(functions, many=tools.many)]
    if form is None:
        rules = written.perhaps_calls(functions, many=tools.many)
        if rules is None:
            raise ApiError(400, "strict: a call that the model is free to make is not bound to its schema in the "
                           f"format {written.name}: send tool_choice required, or leave strict out",
                           param="tools")  # fmt: skip
        return "calls", [rules]
    if written.opening:
        raise ApiError(400, f"response_format and tools do not go together in the format {written.name}, unless "
                       "tool_choice is none", param="response_format")  # fmt: skip
    return "calls | answer", [written.calls(functions, many=tools.many), _answer(form)]


def _answer(form: StructuredOutputsParams) -> str:
    """The form as a rule."""
    match form.kind:
        case "json" | "json_object":
            return f"answer: %json {json.dumps(laid_out(form))}"
        case "choice":
            return "answer: " + " | ".join(map(literal, form.choice or ()))
        case "regex":
            return f"answer: /{slashed(form.regex or '')}/"
    raise ApiError(400, "a grammar can stand neither behind a thought nor beside tools: send json, regex or choice, or "
                   "leave tools out and thinking off", param="structured_outputs")  # fmt: skip
