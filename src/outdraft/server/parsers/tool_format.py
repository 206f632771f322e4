"""What a file of `parsers/tools` offers: how calls are read from a text, and the grammar that enforces them."""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any, Protocol

from outdraft.server.parsers.call_reader import CallReader


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAsked:
    """A function that the model may call, and the schema of its arguments."""

    name: str
    parameters: Mapping[str, Any]


class ToolFormat(Protocol):
    """One way in which models write calls."""

    name: str
    marks: tuple[str, ...]  # that a tokenizer may keep as special tokens, which are no text otherwise
    opening: str  # stands behind the prompt where a call is enforced, because no grammar can write a special token

    def fits(self, template: str) -> bool:
        """Whether a chat template was written for it."""
        ...

    def reader(self, names: frozenset[str], *, opened: bool) -> CallReader:
        """For one answer. `names`: the functions that may be called; `opened`: `opening` stands in the prompt."""
        ...

    def calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str:
        """Rules of a grammar in Lark's notation, of which `calls` is one call, or one and more if `many`."""
        ...

    def perhaps_calls(self, functions: Seq[FunctionAsked], *, many: bool) -> str | None:
        """Rules of which `calls` is any text, in which every call is valid. None where no grammar can say so."""
        ...

    def call_id(self, given: str) -> str:
        """The id of an earlier call as the chat template wants it."""
        ...
