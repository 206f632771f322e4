"""`outdraft chat`: a conversation at the terminal, with a model that is loaded here or with a running server.

A model without a chat template (the zoo's models are such) continues a plain "User: / Assistant:" transcript: it was
not trained to answer, and writes what usually follows such a text. What is behind the prompt is in `cli/chat`.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from outdraft.cli.flags import KeepingFlags, SamplingFlags, TextFlags, read_references
from outdraft.cli.options import argument, flag, same
from outdraft.cli.remote.flags import RemoteFlags

if TYPE_CHECKING:
    from rich.console import Console

    from outdraft.cli.chat.talkers import Talker

SUMMARY = "talk with a model"
EPILOG = """examples:
  outdraft chat
  outdraft chat DIR --color
  outdraft chat --server http://127.0.0.1:8000 --color      # the key: --api-key, or OUTDRAFT_API_KEY
in the conversation:
  /help lists the commands: /regen /undo /save /load /set /system /drafter /race /color /stats /reset /quit
  Ctrl-C stops an answer, Ctrl-D leaves; a backslash at the end of a line, or \"\"\" around several, goes on"""
HELP = "/help lists the commands, Ctrl-C stops an answer, /quit leaves"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEngine(KeepingFlags):
    """A model that was taught to answer, where one is there."""

    model: str = flag(
        "",
        "as for `outdraft generate`; without one smollm2, where its file is found, or else zoo:target",
        also=("--model-id",),
    )

    def chosen(self) -> tuple[Self, str]:
        """With the usual model where none was named, and what is said of it."""
        if self.model:
            return self, ""
        from outdraft.weights.known import usual_model

        model, why = usual_model("zoo:target")
        return replace(self, model=model), f"{why}; {model} answers in its place" if why else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatSampling(SamplingFlags):
    """Sampled by default: greedy text of a small model soon repeats itself."""

    max_tokens: int = flag(512, "the most tokens of an answer")
    temperature: float = flag(0.7, "0 is greedy")
    top_p: float = flag(0.95, "only the most probable tokens that make up P; 1 is off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """An engine, a way to sample, and what comes first."""

    place: str | None = argument(None, "the same as --model", metavar="MODEL")
    engine: ChatEngine = field(metadata={"title": "engine"})
    sampling: ChatSampling = field(metadata={"title": "sampling"})
    remote: RemoteFlags = field(metadata={"title": "a running server"})
    system: str | None = flag(None, "a system message to begin with")
    reference: tuple[str, ...] = same(TextFlags, "reference")
    color: bool = flag(False, "colour the answers by the source of each token")


def run(options: Options) -> int:
    """Read lines and answer them until the user leaves."""
    from outdraft.cli.chat.asking import Asker
    from outdraft.cli.chat.session import Session
    from outdraft.cli.console import make_console, say

    options = replace(options, place=None, engine=options.engine.naming(options.place))
    options.sampling.params()  # bad settings are reported before the model is loaded
    options.remote.check()
    console = make_console()
    session = Session(_talker(options, console), console, system=options.system)
    for note, style in session.talker.notes:
        say(console, note, style=style)
    session.note(HELP)
    asker = Asker()
    try:
        while True:
            try:
                line = asker.ask()
            except KeyboardInterrupt:
                if not asker.is_person:
                    raise
                session.note("\n(/quit or Ctrl-D leaves)")
                continue
            if line is None or not session.take(line):
                return 0
    finally:
        asker.keep()


def _talker(options: Options, console: "Console") -> "Talker":
    references = read_references(options.reference)
    if options.remote.server is not None:
        from outdraft.cli.chat.talkers import Elsewhere
        from outdraft.cli.remote.http import RemoteServer

        server = RemoteServer(options.remote.server, options.remote.api_key)
        return Elsewhere(server, options.engine, options.sampling, references, colour=options.color)
    from outdraft.cli.chat.talkers import Here
    from outdraft.cli.console import notes_shown, say

    engine, note = options.engine.chosen()
    if note:
        say(console, note, style="dim")
    with notes_shown():
        llm = engine.load()
    return Here(llm, options.sampling, references, colour=options.color)
