"""Formats by name, and which one a model writes. A new format is a file of `tools`, or a row of `thinking.py`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from outdraft.codecs.chat import ChatTemplate
from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss
from outdraft.server.parsers.thinking import REASONING, ReasoningFormat
from outdraft.server.parsers.tool_format import ToolFormat
from outdraft.server.parsers.tools.hermes import Hermes
from outdraft.server.parsers.tools.llama3 import Llama3
from outdraft.server.parsers.tools.mistral import Mistral

Format = TypeVar("Format", ToolFormat, ReasoningFormat)
TOOLS: dict[str, ToolFormat] = {one.name: one for one in (Hermes(), Llama3(), Mistral())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """How the model of a server writes; None: not known, or not wanted."""

    tools: ToolFormat | None
    reasoning: ReasoningFormat | None


def find_formats(tools: str, reasoning: str, template: ChatTemplate | None) -> Formats:
    """Both by their names, as `find` has them; of calls, by the text that is used with tools. Raises `ConfigError`."""
    text, with_tools = (None, None) if template is None else (template.source, template.for_tools(()).source)
    return Formats(
        tools=find("tool_call_parser", TOOLS, tools, with_tools),
        reasoning=find("reasoning_parser", REASONING, reasoning, text),
    )


def find(
    setting: Literal["tool_call_parser", "reasoning_parser"],
    known: Mapping[str, Format],
    name: str,
    template: str | None,
) -> Format | None:
    """A format by its name; "auto": the one that the chat template was written for, if any; "none": none.

    Raises `ConfigError` for a name that is not known.
    """
    if name == "none":
        return None
    if name == "auto":
        return next((one for one in known.values() if template is not None and one.fits(template)), None)
    if name not in known:
        choices = ["auto", "none", *known]
        raise ConfigError(f"{setting}={name!r} is not known{near_miss(name, choices)}; there are {', '.join(choices)}")
    return known[name]
