"""Who answers in `outdraft chat`: a model that is loaded here, or a running server.

Data in: messages; data out: pieces of the answer, each with its text painted.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import Any, Protocol

from rich.text import Text

from outdraft.cli.console import lossy_note
from outdraft.cli.flags import SamplingFlags
from outdraft.cli.remote.answer import answer, is_ours, served_model
from outdraft.cli.remote.http import RemoteServer
from outdraft.cli.streamed import painted
from outdraft.codecs.chat import Message, render_chat
from outdraft.engine.callers.result import Chunk
from outdraft.engine.llm import LLM
from outdraft.options.errors import RequestError

UNTAUGHT = (
    "This model has no chat template, so it was not taught to answer: it continues a transcript of User and Assistant, "
    "as any text. For real answers name an instruction-tuned model, as --model DIR"
)
Note = tuple[str, str]  # what is said, and its style


class Talker(Protocol):
    """`notes`: to be said before a conversation. `warnings`: with the figures of every answer."""

    notes: list[Note]
    warnings: list[Note]

    def stream(self, messages: Seq[Message]) -> Iterator[tuple[Chunk, Text]]:
        """The answer, piece by piece."""
        ...


class Here:
    """A model in this process. Raises `RequestError` if it writes no text."""

    def __init__(self, llm: LLM, sampling: SamplingFlags, references: list[str], *, colour: bool) -> None:
        if llm.tokenizer is None:
            raise RequestError(f"{llm.config['model']} has no tokenizer, and a chat needs text")
        self._llm, self._codec, self._sampling, self._references = llm, llm.tokenizer, sampling, references
        self._coloured = self._codec if colour else None
        self.warnings = _notes(lossless=llm.lossless, verifier=llm.config["verifier"]["name"], is_taught=True)
        self.notes = _notes(lossless=True, verifier="", is_taught=self._codec.chat_template is not None) + self.warnings

    def stream(self, messages: Seq[Message]) -> Iterator[tuple[Chunk, Text]]:
        asked = render_chat(self._codec.chat_template, messages, control=self._codec.control)
        prompt = {"prompt_token_ids": self._codec.encode_chat(asked), "references": self._references}
        params = self._sampling.params(stop=(*self._sampling.stop, *asked.stop))
        yield from painted(self._llm.stream(prompt, params), self._coloured)


class Elsewhere:
    """A running server. `body`: the fields of every request. Raises as `RemoteServer.get` does."""

    def __init__(self, server: RemoteServer, body: dict[str, Any], *, colour: bool) -> None:
        model = served_model(server)
        self._server, self._colour, self._ours = server, colour, is_ours(model)
        self._body = {"model": model.get("id"), **body}
        verifier = (model.get("speculative") or {}).get("verifier", "")
        self.warnings = _notes(lossless=model.get("lossless", True), verifier=verifier, is_taught=True)
        self.notes = [(f"{self._body['model']} at {server.url}", "dim")]
        self.notes += _notes(lossless=True, verifier="", is_taught=model.get("chat_template", True)) + self.warnings
        if not self._ours:
            self.notes.append(
                ("The server is another program's: it gives no sources of tokens, and no figures.", "dim")
            )

    def stream(self, messages: Seq[Message]) -> Iterator[tuple[Chunk, Text]]:
        body = {**self._body, "messages": list(messages)}
        yield from answer(self._server, "/v1/chat/completions", body, ours=self._ours, colour=self._colour)


def _notes(*, lossless: bool, verifier: str, is_taught: bool) -> list[Note]:
    found = [] if is_taught else [(UNTAUGHT, "dim")]
    return found if lossless else [*found, (lossy_note(verifier), "bold red")]
