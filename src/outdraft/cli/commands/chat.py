"""`outdraft chat`: a conversation at the terminal, with a model that is loaded here or with a running server.

A model without a chat template (the zoo's models are such) continues a plain "User: / Assistant:" transcript: it was
not trained to answer, and writes what usually follows such a text.
"""

import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from outdraft.cli.flags import KeepingFlags, SamplingFlags, TextFlags, read_references
from outdraft.cli.options import argument, flag, same
from outdraft.cli.remote.flags import RemoteFlags
from outdraft.options.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from rich.console import Console

    from outdraft.cli.streamed import Tally
    from outdraft.cli.talk import Talker

SUMMARY = "talk with a model"
EPILOG = """examples:
  outdraft chat DIR --color
  outdraft chat --server http://127.0.0.1:8000 --color      # the key: --api-key, or OUTDRAFT_API_KEY
in the conversation:
  /reset  forget the conversation     /stats  show figures of the last answer
  /help   list these commands         /quit   leave (or Ctrl-D)
  Ctrl-C stops an answer; pressed twice, or at the prompt, it leaves"""
HELP = "/reset forgets the conversation, /stats shows figures of the last answer, /help shows this line, /quit leaves"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSampling(SamplingFlags):
    """Sampled by default: greedy text of a small model soon repeats itself."""

    temperature: float = flag(0.7, "0 is greedy")
    top_p: float = flag(0.95, "only the most probable tokens that make up P; 1 is off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """An engine, a way to sample, and what comes first."""

    place: str | None = argument(None, "the same as --model", metavar="MODEL")
    engine: KeepingFlags = field(metadata={"title": "engine"})
    sampling: ChatSampling = field(metadata={"title": "sampling"})
    remote: RemoteFlags = field(metadata={"title": "a running server"})
    system: str | None = flag(None, "a system message to begin with")
    reference: tuple[str, ...] = same(TextFlags, "reference")
    color: bool = flag(False, "colour the answers by the source of each token")


def run(options: Options) -> int:
    """Read lines and answer them until the user leaves."""
    from outdraft.cli.console import make_console

    options = replace(options, place=None, engine=options.engine.naming(options.place))
    options.sampling.params()  # bad settings are reported before the model is loaded
    options.remote.check()
    console = make_console()
    chat = Chat(_talker(options), options, console)
    for note, style in chat.talker.notes:
        console.print(note, style=style, markup=False)
    console.print(HELP, style="dim")
    while (line := _ask(console)) is not None:
        if line.startswith("/"):
            if not chat.obey(line.strip()):
                break
        elif line.strip():
            chat.answer(line)
    return 0


def _talker(options: Options) -> "Talker":
    references = read_references(options.reference)
    if options.remote.server is not None:
        from outdraft.cli.remote.flags import asked
        from outdraft.cli.remote.http import RemoteServer
        from outdraft.cli.talk import Elsewhere

        body = asked(options.engine, options.sampling, references)
        return Elsewhere(RemoteServer(options.remote.server, options.remote.api_key), body, colour=options.color)
    from outdraft.cli.console import notes_shown
    from outdraft.cli.talk import Here

    with notes_shown():
        llm = options.engine.load()
    return Here(llm, options.sampling, references, colour=options.color)


@dataclass(slots=True)
class Chat:
    """The conversation so far."""

    talker: "Talker"
    options: Options
    console: "Console"
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
        from outdraft.cli.streamed import Tally

        self.messages.append({"role": "user", "content": question})
        self.last = Tally()
        written = ""
        try:
            for chunk, painted in self.talker.stream(self.messages):
                self.last.add(chunk)
                written += chunk.text
                self.console.print(painted, end="", soft_wrap=True)
                self.console.file.flush()
            self.console.print()
        except KeyboardInterrupt:
            self.console.print()
            self.console.print("(interrupted; Ctrl-C again leaves)", style="dim")
        except (ConfigError, RequestError) as error:
            self.messages.pop()
            cure = "; /reset starts anew" if isinstance(error, RequestError) else ""  # else the server is away
            self.console.print(f"{error}{cure}", style="red", markup=False)
            return
        self.messages.append({"role": "assistant", "content": written.strip()})

    def _show(self, tally: "Tally") -> None:
        tally.show(self.console)
        for note, style in self.talker.warnings:
            self.console.print(note, style=style, markup=False)


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
