"""A conversation at the terminal: questions are answered, and lines that begin with a slash are commands.

What goes wrong is one line, and the conversation goes on; Ctrl-C stops what is under way.
"""

from collections.abc import Callable
from inspect import getdoc

from rich.console import Console
from rich.table import Table

from outdraft.cli.chat.conversation import Conversation
from outdraft.cli.chat.setting import changed, told_settings
from outdraft.cli.chat.talkers import Talker
from outdraft.cli.chat.writing import answer_writer
from outdraft.cli.console import has_style, legend, say
from outdraft.cli.streamed import Tally
from outdraft.options.errors import OutdraftError, RequestError
from outdraft.options.near_miss import near_miss


class Session:
    """One conversation. Each method `do_NAME` is a command; its docstring is what /help says of it."""

    def __init__(self, talker: Talker, console: Console, *, system: str | None = None) -> None:
        self.talker, self.console = talker, console
        self.said = Conversation()
        self.said.system = system or ""
        self._last: Tally | None = None
        self._is_over = False

    def take(self, line: str) -> bool:
        """Do what a line wants. False: the user leaves."""
        try:
            if line.startswith("/"):
                self._obey(line)
            elif line.strip():
                self._answer(line.strip())
        except KeyboardInterrupt:
            self.note("(stopped; /quit or Ctrl-D leaves)")
        except OutdraftError as error:
            say(self.console, " ".join(str(error).split()), style="red")
        return not self._is_over

    def note(self, text: str) -> None:
        say(self.console, text, style="dim")

    def _obey(self, line: str) -> None:
        name, _, words = line[1:].strip().partition(" ")
        known = commands()
        if name == "exit":
            name = "quit"
        if name not in known:
            self.note(f"unknown command /{name}{near_miss(name, known)}: /help lists them; a space before it asks it")
            return
        words, (usage, _) = words.strip(), _told(known[name])
        if words and not usage:
            raise RequestError(f"/{name} takes no words, and {words!r} would be lost: ask it on a line of its own")
        known[name](self, words)

    def _answer(self, question: str) -> None:
        """Stream one answer; Ctrl-C ends it and keeps what was written. An error takes the question back."""
        self.said.ask(question)
        tally, written = Tally(), ""
        try:
            with answer_writer(self.console, colour=self.talker.colour) as writer:
                for chunk, painted in self.talker.stream(self.said.messages):
                    tally.add(chunk)
                    written += chunk.text
                    writer.add(painted)
        except OutdraftError as error:
            self.said.take_back()
            if isinstance(error, RequestError):  # else the server is away
                raise RequestError(f"{error}; /reset starts anew") from error
            raise
        except BaseException:
            self._keep(tally, written)
            raise
        self._keep(tally, written)
        if self.console.is_terminal and tally.stats.num_tokens:
            self.note(tally.stats.brief)
        if tally.finish_reason == "length":
            self._tell_cut(tally.stats.num_tokens)

    def _keep(self, tally: Tally, written: str) -> None:
        self._last = tally
        self.said.answer(written.strip())

    def _tell_cut(self, num_tokens: int) -> None:
        most = self.talker.sampling.max_tokens
        if not num_tokens or num_tokens >= most:
            self.note(f"cut at {most} tokens (/set max_tokens={2 * most})")
        else:
            self.note(f"cut at {num_tokens} tokens: the context is full (/undo, or /reset)")

    def do_help(self, words: str) -> None:
        """list these commands"""
        table = Table.grid(padding=(0, 2))
        for name, command in commands().items():
            usage, meaning = _told(command)
            table.add_row(f"/{name} {usage}", meaning)
        table.add_row("", 'a backslash at the end of a line, or """ around several, goes on; Ctrl-C stops an answer')
        self.console.print(table, style="dim", markup=False)

    def do_regen(self, words: str) -> None:
        """answer the last question once more"""
        before, question = [*self.said.messages], self._taken_back()
        sampling = self.talker.sampling
        if sampling.seed is not None or not sampling.temperature:
            self.note("(the same text again: /set seed=none, and a temperature above 0, for another one)")
        try:
            self._answer(question)
        except OutdraftError:
            self.said.messages = before
            raise

    def do_undo(self, words: str) -> None:
        """forget the last question and its answer"""
        self.note(f"(forgotten: {' '.join(self._taken_back().split())[:60]})")

    def do_reset(self, words: str) -> None:
        """forget the conversation"""
        self.said.reset()
        self.note("(forgotten)")

    def do_save(self, words: str) -> None:
        """FILE: write the conversation"""
        self.said.save(_named(words, "/save FILE"))
        self.note(f"({len(self.said.messages)} messages in {words})")

    def do_load(self, words: str) -> None:
        """FILE: go on with a conversation that was saved"""
        self.said.load(_named(words, "/load FILE"))
        self.note(f"({len(self.said.messages)} messages of {words})")

    def do_set(self, words: str) -> None:
        """NAME=VALUE: change a setting of sampling; alone it shows them"""
        if words:
            self.talker.sampling = changed(self.talker.sampling, words)
        self.note(told_settings(self.talker.sampling))

    def do_system(self, words: str) -> None:
        """TEXT: the message of the system from now on; alone it removes it"""
        self.said.system = words
        self.note(f"(system: {words})" if words else "(no message of the system)")

    def do_drafter(self, words: str) -> None:
        """NAME: let another method draft, or none, or the default"""
        self.note(self.talker.use_drafter(_named(words, "/drafter NAME")))

    def do_race(self, words: str) -> None:
        """answer the last question plainly beside speculatively"""
        asked = self.said.asked
        if not asked:
            raise RequestError("/race answers the last question: ask one first")
        self.talker.race(self.console, asked, asked[-1]["content"])

    def do_color(self, words: str) -> None:
        """colour answers by where their tokens came from, or draw Markdown again"""
        self.talker.colour = not self.talker.colour
        if self.talker.colour and has_style(self.console):
            self.console.print(legend())
        else:
            self.note("(colours are " + ("on)" if self.talker.colour else "off)"))

    def do_stats(self, words: str) -> None:
        """figures of the last answer"""
        if self._last is None:
            self.note("(no answer yet)")
            return
        self._last.show(self.console)
        for told, style in self.talker.warnings:
            say(self.console, told, style=style)

    def do_quit(self, words: str) -> None:
        """leave (or Ctrl-D)"""
        self._is_over = True

    def _taken_back(self) -> str:
        question = self.said.take_back()
        if question is None:
            raise RequestError("there is no question yet")
        return question


def commands() -> dict[str, Callable[[Session, str], None]]:
    """Each command by its name, without the slash."""
    return {name.removeprefix("do_"): made for name, made in vars(Session).items() if name.startswith("do_")}


def _told(command: Callable[[Session, str], None]) -> tuple[str, str]:
    """What words a command takes, "" for none, and what it does."""
    usage, _, meaning = " ".join((getdoc(command) or "").split()).rpartition(": ")
    return usage, meaning


def _named(words: str, usage: str) -> str:
    if not words:
        raise RequestError(f"it needs a name: {usage}")
    return words
