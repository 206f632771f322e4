"""What binds a chat's answer: the functions that it may call, and a grammar where several things bind it at once.

start: thought calls                   a call is required
start: thought (calls | answer)        a call, or an answer of the form
start: thought answer                  a form, behind a thought that has none
"""

import json
from collections import Counter
from dataclasses import dataclass

from outdraft.codecs.grammar.spelling import laid_out, slashed
from outdraft.options.near_miss import near_miss
from outdraft.options.structured import StructuredOutputsParams
from outdraft.server.errors import wrong_field
from outdraft.server.parsers.thinking import ThinkingReader
from outdraft.server.parsers.tool_format import FunctionAsked, ToolFormat, literal
from outdraft.server.schema.chat import ChatRequest, ToolChoice

_SHOWN = 160  # characters of the tools' names in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsAsked:
    """Tools that are in force for one request."""

    format: ToolFormat
    functions: tuple[FunctionAsked, ...]  # that may be called
    is_required: bool
    is_strict: bool  # a call that the model is free to make has the schema of its function all the same
    many: bool  # several calls in an answer

    @property
    def names(self) -> frozenset[str]:
        return frozenset(one.name for one in self.functions)

    @property
    def opening(self) -> str:
        """The mark that begins a call, where the prompt ends with it; else empty."""
        return self.format.opening if self.is_required else ""


def tools_asked(body: ChatRequest, written: ToolFormat | None) -> ToolsAsked | None:
    """None: the answer is text alone. `written`: how the model writes calls, if that is known.

    Raises `ApiError` for a choice that cannot be met.
    """
    tools, choice = body.tools or [], body.tool_choice or ("auto" if body.tools else "none")
    names = [tool.function.name for tool in tools]
    if len({*names}) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise wrong_field(f"tools: {twice} stands there twice: each function has a name of its own")
    if choice == "none" or (choice == "auto" and not tools):
        return None
    wanted = choice.function.name if isinstance(choice, ToolChoice) else None
    if not tools:
        asked = choice if wanted is None else wanted
        raise wrong_field(f"tool_choice={asked} needs tools: send the functions that may be called")
    if wanted is not None and wanted not in names:
        known = ", ".join(names)
        known = known if len(known) <= _SHOWN else f"{known[:_SHOWN]}..."
        raise wrong_field(f"tool_choice names {wanted!r}{near_miss(wanted, names)}; the tools are {known}")
    if written is None:
        raise wrong_field(
            "tools: it is not known how this model writes calls; the server's operator says it with --tool-call-parser"
        )
    functions = [one.function for one in tools if wanted in (None, one.function.name)]
    return ToolsAsked(
        format=written,
        functions=tuple(FunctionAsked(name=one.name, parameters=one.parameters or {}) for one in functions),
        is_required=choice != "auto",
        is_strict=any(one.function.strict for one in tools),
        many=body.parallel_tool_calls is not False and wanted is None,
    )


def bound(
    tools: ToolsAsked | None, form: StructuredOutputsParams | None, thinking: ThinkingReader | None, field: str
) -> StructuredOutputsParams | None:
    """What binds the answer; None: nothing does. `thinking`: a reader that has read nothing of it. `field`: the form's.

    Raises `ApiError` for what cannot go together.
    """
    thinks = thinking is not None and thinking.may_think
    if tools is None or not (tools.is_required or tools.is_strict or form is not None):
        if form is None or not thinks:
            return form
        rest, rules = "answer", [_answer(form)]
    else:
        rest, rules = _with_calls(tools, form, field)
    if thinking is not None and thinks:
        rest, rules = f"thought ({rest})", [*rules, thinking.rules()]
    return StructuredOutputsParams(grammar="\n".join([f"start: {rest}", *rules]) + "\n")


def _with_calls(tools: ToolsAsked, form: StructuredOutputsParams | None, field: str) -> tuple[str, list[str]]:
    written, functions = tools.format, tools.functions
    if tools.is_required:
        if form is not None:
            raise wrong_field(f"tool_choice asks for a call, and {field} for another text: leave one out")
        return "calls", [written.calls(functions, many=tools.many)]
    if form is None:
        rules = written.perhaps_calls(functions, many=tools.many)
        if rules is None:
            raise wrong_field(
                "strict: a call that the model is free to make is not bound to its schema in the format "
                f"{written.name}: send tool_choice required, or leave strict out",
                "tools",
            )
        return "calls", [rules]
    if written.opening:
        raise wrong_field(
            f"{field} and tools do not go together in the format {written.name}, unless tool_choice is none"
        )
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
    raise wrong_field(
        "a grammar can stand neither behind a thought nor beside tools: send json, regex or choice, or leave tools out "
        "and thinking off",
        "structured_outputs",
    )
