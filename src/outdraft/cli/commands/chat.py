"""`outdraft chat`: a conversation at the terminal.

A model without a chat template (the zoo's models are such) continues a plain "User: / Assistant:" transcript: it was
not trained to answer, and writes what usually follows such a text.
"""

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outdraft.cli.flags import EngineFlags, SamplingFlags, read_references
from outdraft.cli.options import flag
from outdraft.core.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.text import Text

    from outdraft.cli.tally import Tally
    from outdraft.engine.llm import LLM
    from outdraft.engine.writer import Chunk

SUMMARY = "talk with a model"
EPILOG = """in the conversation:
  /reset  forget the conversation     /stats  show figures of the last answer
  /help   list these commands         /quit   leave (or Ctrl-D)
  Ctrl-C stops an answer; pressed twice, or at the prompt, it leaves"""
HELP = "/reset forgets the conversation, /stats shows figures of the last answer, /help shows this line, /quit leaves"
UNTAUGHT = (
    "This model has no chat template, so it was not taught to answer: it continues a transcript of User and Assistant, "
    "as any text. For real answers name an instruction-tuned model: outdraft chat --model DIR"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSampling(SamplingFlags):
    """Sampled by default: greedy text of a small model soon repeats itself."""

    temperature: float = flag(0.7, "0 is greedy")
    top_p: float = flag(0.95, "only the most probable tokens that make up P; 1 is off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """An engine, a way to sample, and what comes first."""

    engine: EngineFlags = field(metadata={"title": "engine"})
    sampling: ChatSampling = field(metadata={"title": "sampling"})
    system: str | None = flag(None, "a system message to begin with")
    reference: tuple[str, ...] = flag((), "a text file that the answer may copy from, for drafters that look up; may "
                                      "be repeated", metavar="FILE")  # fmt: skip
    color: bool = flag(False, "colour the answers by the source of each token")


def run(options: Options) -> int:
    """Read lines and answer them until the user leaves."""
    from outdraft.cli.console import make_console, warn_if_lossy

    options.sampling.params()  # bad settings are told before the model is loaded
    references = read_references(options.reference)
    llm = options.engine.load()
    if llm.codec is None:
        raise RequestError(f"{options.engine.model} has no tokenizer, and a chat needs text")
    console = make_console()
    chat = Chat(llm, options, console, references)
    if llm.codec.chat_template is None:
        console.print(UNTAUGHT, style="dim", markup=False)
    warn_if_lossy(console, llm)
    console.print(HELP, style="dim")
    while (line := _ask(console)) is not None:
        if line.startswith("/"):
            if not chat.obey(line.strip()):
                break
        elif line.strip():
            chat.answer(line)
    return 0


@dataclass(slots=True)
class Chat:
    """The conversation so far."""

    llm: "LLM"
    options: Options
    console: "Console"
    references: list[str]
    messages: list[dict[str, str]] = field(default_factory=list)
    last: "Tally | None" = None

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Back to the system message, if there is one."""
        self.messages = [{"role": "system", "content": self.options.system}] if self.options.system else []

    def obey(self, command: str) -> bool:
        """A line that begins with a slash; false if it was /quit."""
        if command in ("/quit", "/exit"):
            return False
        if command == "/reset":
            self.reset()
            self.console.print("(forgotten)", style="dim")
        elif command == "/help":
            self.console.print(HELP, style="dim")
        elif command == "/stats":
            if self.last is None:
                self.console.print("(no answer yet)", style="dim")
            else:
                self._show(self.last)
        else:
            self.console.print(f"unknown command {command}: {HELP}", style="dim")
        return True

    def answer(self, question: str) -> None:
        """Stream one answer; Ctrl-C ends it and keeps what was written."""
        from outdraft.cli.tally import Tally

        self.messages.append({"role": "user", "content": question})
        self.last = Tally()
        written = ""
        try:
            for chunk, painted in self._stream():
                self.last.add(chunk)
                written += chunk.text
                self.console.print(painted, end="", soft_wrap=True)
                self.console.file.flush()
            self.console.print()
        except KeyboardInterrupt:
            self.console.print()
            self.console.print("(interrupted; Ctrl-C again leaves)", style="dim")
        except RequestError as error:
            self.messages.pop()
            self.console.print(f"{error}; /reset starts anew", style="red", markup=False)
            return
        self.messages.append({"role": "assistant", "content": written.strip()})

    def _show(self, tally: "Tally") -> None:
        from outdraft.cli.console import warn_if_lossy

        tally.show(self.console)
        warn_if_lossy(self.console, self.llm)

    def _stream(self) -> "Iterator[tuple[Chunk, Text]]":
        """(chunk, its text painted) after (chunk, its text painted)."""
        from rich.text import Text

        from outdraft.cli.colours import Colours, paint
        from outdraft.codecs.chat import render_chat

        codec = self.llm.codec
        assert codec is not None
        asked = render_chat(codec.chat_template, self.messages)
        stop = (*self.options.sampling.stop, *asked.stop)
        ids = codec.encode(asked.text, add_special=asked.add_special)
        colours = Colours(codec) if self.options.color else None
        prompt = {"prompt_token_ids": ids, "references": self.references}
        for chunk in self.llm.stream(prompt, self.options.sampling.params(stop=stop)):
            yield chunk, paint(colours.take(chunk)) if colours else Text(chunk.text)


def _ask(console: "Console") -> str | None:
    """The next line; None at its end. A prompt is shown to people only."""
    if not sys.stdin.isatty():
        try:
            return sys.stdin.readline() or None
        except UnicodeDecodeError as error:
            raise RequestError(f"standard input is not UTF-8 text: {error}") from error
    import readline  # noqa: F401 - line editing for input()

    try:
        return input("\n> ")
    except EOFError:
        console.print()
        return None
