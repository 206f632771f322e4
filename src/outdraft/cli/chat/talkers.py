"""Who answers in `outdraft chat`: a model that is loaded here, or a running server.

Data in: messages; data out: pieces of the answer, each with its text painted. `notes`: to be said before a
conversation. `warnings`: with the figures of every answer. `sampling` and `colour` may change between two answers.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from outdraft.cli.console import lossy_note
from outdraft.cli.flags import EngineFlags, SamplingFlags
from outdraft.cli.race import race
from outdraft.cli.remote.answer import answer, is_ours, served_model
from outdraft.cli.remote.flags import asked
from outdraft.cli.remote.http import RemoteServer
from outdraft.cli.streamed import painted
from outdraft.codecs.chat import Message, render_chat
from outdraft.engine.callers.result import Chunk
from outdraft.engine.llm import LLM
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams

UNTAUGHT = (
    "This model has no chat template, so it was not taught to answer: it continues a transcript of User and Assistant, "
    "as any text. For real answers name an instruction-tuned model, as --model DIR"
)
Note = tuple[str, str]  # what is said, and its style


class Here:
    """A model in this process. Raises `RequestError` if it writes no text."""

    def __init__(self, llm: LLM, sampling: SamplingFlags, references: list[str], *, colour: bool) -> None:
        if llm.tokenizer is None:
            raise RequestError(f"{llm.config['model']} has no tokenizer, and a chat needs text")
        self.sampling, self.colour = sampling, colour
        self._first, self._codec, self._references = llm, llm.tokenizer, references
        self._hold(llm)
        self.notes = _notes(is_taught=self._codec.chat_template is not None, warnings=self.warnings)

    def stream(self, messages: Seq[Message]) -> Iterator[tuple[Chunk, Text]]:
        prompt, params = self._asked(messages)
        yield from painted(self._llm.stream(prompt, params), self._codec if self.colour else None)

    def use_drafter(self, name: str) -> str:
        """Draft with this method from now on, or as at first ("default"); returns what is said of it."""
        before = self._llm
        self._hold(self._first if name == "default" else self._first.with_drafter(name))
        if before is not self._first:
            before.close()
        return repr(self._llm)

    def race(self, console: Console, messages: Seq[Message], title: str) -> None:
        """Show the answer written plainly and as it is drafted now."""
        prompt, params = self._asked(messages)
        if params.temperature and params.seed is None:
            params = replace(params, seed=1)  # so that both write the same text
        with self._first.with_drafter("none") as plain:
            race(console, f"{title}\n", {"plain": plain, "speculative": self._llm}, params, asked=prompt)

    def _hold(self, llm: LLM) -> None:
        self._llm = llm
        self.warnings = _warnings(lossless=llm.lossless, verifier=llm.config["verifier"]["name"])

    def _asked(self, messages: Seq[Message]) -> tuple[dict[str, Any], SamplingParams]:
        chat = render_chat(self._codec.chat_template, messages, control=self._codec.control)
        prompt = {"prompt_token_ids": self._codec.encode_chat(chat), "references": self._references}
        return prompt, self.sampling.params(stop=(*self.sampling.stop, *chat.stop))


class Elsewhere:
    """A running server. `engine`: the flags that its requests say. Raises as `RemoteServer.ask` does."""

    def __init__(
        self, server: RemoteServer, engine: EngineFlags, sampling: SamplingFlags, references: list[str], *, colour: bool
    ) -> None:
        self.sampling, self.colour = sampling, colour
        self._server, self._engine, self._references = server, engine, references
        asked(engine, sampling, references)  # what the server cannot do is refused at once
        model = served_model(server)
        self._ours, self._served = is_ours(model), model
        verifier = (model.get("speculative") or {}).get("verifier", "")
        self.warnings = _warnings(lossless=model.get("lossless", True), verifier=verifier)
        self.notes = [(f"{engine.model or model.get('id')} at {server.url}", "dim")]
        self.notes += _notes(is_taught=model.get("chat_template", True), warnings=self.warnings)
        if not self._ours:
            self.notes += [("The server is another program's: it gives no sources of tokens, and no figures.", "dim")]

    def stream(self, messages: Seq[Message]) -> Iterator[tuple[Chunk, Text]]:
        fields = asked(self._engine, self.sampling, self._references)
        body = {"model": self._served.get("id"), **fields, "messages": list(messages)}
        yield from answer(self._server, "/v1/chat/completions", body, ours=self._ours, colour=self.colour)

    def use_drafter(self, name: str) -> str:
        held = (self._served.get("speculative") or {}).get("methods") or ()
        if name not in ("default", "none", *held):
            raise RequestError(f"the server holds no drafter {name!r}: {', '.join(('default', 'none', *held))}")
        self._engine = replace(self._engine, drafter=None if name == "default" else name)
        return f"drafter: {name}"

    def race(self, console: Console, messages: Seq[Message], title: str) -> None:
        raise RequestError("/race needs a model of one's own: leave --server out")


def _notes(*, is_taught: bool, warnings: list[Note]) -> list[Note]:
    return [*warnings] if is_taught else [(UNTAUGHT, "dim"), *warnings]


def _warnings(*, lossless: bool, verifier: str) -> list[Note]:
    return [] if lossless else [(lossy_note(verifier), "bold red")]


Talker = Here | Elsewhere
