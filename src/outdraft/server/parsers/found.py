"""Formats by name, and which one a model writes. There is no list to edit: a file that holds a `FORMAT` is one."""

import importlib
import pkgutil
from dataclasses import dataclass
from typing import Any, Literal, cast, overload

from outdraft.codecs.chat import ChatTemplate
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.server.parsers.thinking import ReasoningFormat
from outdraft.server.parsers.tool_format import ToolFormat

Kind = Literal["tools", "reasoning"]
_FLAG = {"tools": "tool_call_parser", "reasoning": "reasoning_parser"}
_HERE = "outdraft.server.parsers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """How the model of a server writes; None: not known, or not wanted."""

    tools: ToolFormat | None
    reasoning: ReasoningFormat | None


def find_formats(tools: str, reasoning: str, template: ChatTemplate | None) -> Formats:
    """Both by their names, as `find` has them; of calls, by the text that is used with tools. Raises `ConfigError`."""
    text, with_tools = (None, None) if template is None else (template.source, template.for_tools(()).source)
    return Formats(tools=find("tools", tools, with_tools), reasoning=find("reasoning", reasoning, text))


def names(kind: Kind) -> list[str]:
    """All formats of a kind, sorted."""
    package = importlib.import_module(f"{_HERE}.{kind}")
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


@overload
def find(kind: Literal["tools"], name: str, template: str | None) -> ToolFormat | None: ...
@overload
def find(kind: Literal["reasoning"], name: str, template: str | None) -> ReasoningFormat | None: ...
def find(kind: Kind, name: str, template: str | None) -> Any:
    """A format by its name; "auto": the one that the chat template was written for, if any; "none": none.

    Raises `ConfigError` for a name that is not known.
    """
    known = names(kind)
    if name == "none":
        return None
    if name == "auto":
        formats = [_load(kind, one) for one in known]
        return next((one for one in formats if template is not None and one.fits(template)), None)
    if name not in known:
        choices = ["auto", "none", *known]
        raise ConfigError(
            f"{_FLAG[kind]}={name!r} is not known{near_miss(name, choices)}; there are {', '.join(choices)}"
        )
    return _load(kind, name)


def _load(kind: Kind, name: str) -> ToolFormat | ReasoningFormat:
    return cast(ToolFormat | ReasoningFormat, importlib.import_module(f"{_HERE}.{kind}.{name}").FORMAT)
