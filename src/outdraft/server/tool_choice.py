"""Which functions an answer may call, and whether it must."""

from collections import Counter
from dataclasses import dataclass

from outdraft.options.near_miss import near_miss
from outdraft.server.errors import ApiError
from outdraft.server.parsers.tool_format import FunctionAsked, ToolFormat
from outdraft.server.schema.chat import ChatRequest, Tool, ToolChoice

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
        """Of the functions."""
        return frozenset(one.name for one in self.functions)


def tools_asked(body: ChatRequest, written: ToolFormat | None) -> ToolsAsked | None:
    """None: the answer is text alone. `written`: how the model writes calls, if that is known.

    Raises `ApiError` for a choice that cannot be met.
    """
    tools, choice = body.tools or [], body.tool_choice or ("auto" if body.tools else "none")
    names = [tool.function.name for tool in tools]
    if len({*names}) < len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise ApiError(400, f"tools: {twice} stands there twice: each function has a name of its own", param="tools")
    if choice == "none" or (choice == "auto" and not tools):
        return None
    if not tools:
        raise ApiError(400, f"tool_choice={_shown(choice)} needs tools: send the functions that may be called",
                       param="tool_choice")  # fmt: skip
    if isinstance(choice, ToolChoice) and choice.function.name not in names:
        known = ", ".join(names)
        known = known if len(known) <= _SHOWN else f"{known[:_SHOWN]}..."
        raise ApiError(400, f"tool_choice names {choice.function.name!r}{near_miss(choice.function.name, names)}; the "
                       f"tools are {known}", param="tool_choice")  # fmt: skip
    if written is None:
        raise ApiError(400, "tools: it is not known how this model writes calls; the server's operator says it with "
                       "--tool-call-parser", param="tools")  # fmt: skip
    callable_ = [
        one for one in tools if not isinstance(choice, ToolChoice) or one.function.name == choice.function.name
    ]
    return ToolsAsked(
        format=written, functions=tuple(_function(one) for one in callable_), is_required=choice != "auto",
        is_strict=any(one.function.strict for one in tools),
        many=body.parallel_tool_calls is not False and not isinstance(choice, ToolChoice),
    )  # fmt: skip


def _function(tool: Tool) -> FunctionAsked:
    return FunctionAsked(name=tool.function.name, parameters=tool.function.parameters or {})


def _shown(choice: str | ToolChoice) -> str:
    return choice if isinstance(choice, str) else choice.function.name
