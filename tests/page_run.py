"""Paste what a page shows, one thing after the other, in a directory with the files that pages name.

    Paste -- page_commands.toml: what is put in a word's place, added, left out --> run --> an exit code

Commands of outdraft and programs run in this process; a server and what needs a shell are processes of their own.
"""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from page_blocks import ROOT, Paste
from serve_command import command as serving

from outdraft import zoo
from outdraft.cli.main import main
from outdraft.weights.known import USUAL, usual_model

SAID: Mapping[str, Any] = tomllib.loads((ROOT / "tests/page_commands.toml").read_text(encoding="utf-8"))
HELD = usual_model("zoo:target")[0]  # smollm2, or what stands in its place


def said_of(paste: Paste, kind: str) -> list[Mapping[str, Any]]:
    """The entries of the table that are meant for this paste."""
    text = re.sub(r"  +#.*", "", paste.text)
    rows = [row for row in SAID[kind] if row.get("page", paste.page) == paste.page and row["line"] in text]
    return [row for row in rows if "unless" not in row or row["unless"] not in text]


def left_out(paste: Paste) -> bool:
    """What needs smollm2 runs where that is found."""
    return any(row["needs"] != USUAL or HELD != USUAL for row in said_of(paste, "left_out"))


def changed(paste: Paste) -> str:
    """What runs: the text, with what the table puts in its place and adds."""
    text = paste.text
    for row in said_of(paste, "put"):
        text = re.sub(rf"(?<![\w/.-]){re.escape(row['line'])}(?![\w])", row["by"], text)
    if not paste.is_python:
        more = " ".join(row["words"] for row in said_of(paste, "add"))
        text = f"{re.sub(r'  +#.*', '', text)} {more}".strip()
        text = text if HELD == USUAL else re.sub(rf"\b{USUAL}\b", HELD, text)
    return text


class Reader:
    """Pastes; knows the programs' names and the server that a page has started."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str], cleanup: contextlib.ExitStack) -> None:
        self.place, self.capsys, self.cleanup = place, capsys, cleanup
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.address = ""

    def paste(self, paste: Paste) -> None:
        """Raises where it does not end as it should."""
        text = changed(paste)
        if paste.is_python:
            exec(compile(text, paste.page, "exec"), self.names)
            return
        codes = (0, *(row["code"] for row in said_of(paste, "ends")))
        code, said = self._run(text)
        assert code in codes, f"{paste.page}: {text}\nended with {code}\n{said[-3000:]}"

    def _run(self, text: str) -> tuple[int, str]:
        text = re.sub(r"(?:http://)?(?:localhost|127\.0\.0\.1):8000", self.address or r"\g<0>", text)
        text = re.sub(r"^curl ", "curl --fail --silent --show-error ", text)
        words = shlex.split(text, comments=True)
        if words[:2] == ["outdraft", "serve"]:
            given = [word for word in re.sub(r"--port \d+", "", shlex.join(words[2:])).split()]
            self.address = self.cleanup.enter_context(serving(*shlex.split(" ".join(given)))).rstrip("/")
            return 0, ""
        if words[0] == "outdraft" and not re.search(r"[|<>$&;]", re.sub(r"'[^']*'|\"[^\"$]*\"", "", text)):
            return self._command(words[1:])
        return self._shell(text)

    def _command(self, words: list[str]) -> tuple[int, str]:
        before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b"Hello\n/quit\n"), "utf-8")
        try:
            code = main(words)
        except SystemExit as left:
            code = int(left.code or 0)
        finally:
            sys.stdin = before
        shown = self.capsys.readouterr()
        return code, shown.out + shown.err

    def _shell(self, text: str) -> tuple[int, str]:
        programs = self.place / "programs"
        if not programs.exists():
            programs.mkdir()
            for name, runs in {"outdraft": "-m outdraft", "python": "", "python3": ""}.items():
                (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {runs} "$@"\n')
                (programs / name).chmod(0o755)
        paths = os.pathsep.join(map(str, (ROOT / "src", ROOT, ROOT / "examples", os.environ.get("PYTHONPATH", ""))))
        environment = {**os.environ, "PYTHONPATH": paths, "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["bash", "-c", text], cwd=self.place, env=environment, capture_output=True, text=True, timeout=300
        )
        return done.returncode, done.stdout + done.stderr


def fill(place: Path, page: Path) -> None:
    """The files that pages name, but those that this one makes: questions, answers, texts."""
    made = re.findall(r"--out (\S+)", page.read_text(encoding="utf-8"))
    texts = [json.loads(line)["prompt"] for line in (zoo.path("target").parent / "heldout.jsonl").open()]
    answers = "".join(json.dumps({"text": text * 2}) + "\n" for text in texts)
    prompts = "".join(json.dumps({"prompt": text[:40]}) + "\n" for text in texts)
    for name in ("answers.jsonl", "other.jsonl"):
        if name not in made:
            (place / name).write_text(answers)
    (place / "prompts.jsonl").write_text(prompts)
    for name in ("texts.txt", "a.txt", "some_text.txt", "prompts.txt", "books.txt"):
        (place / name).write_text("\n".join(texts))
    (place / "person.json").write_text('{"type": "object", "properties": {"age": {"type": "integer", "maximum": 9}}}')
    (place / "notes.txt").write_text(texts[0])
    (place / "prompt.txt").write_text(texts[0] + "\n---\n")


def stale() -> Iterator[str]:
    """Entries of the table that no page has."""
    from page_blocks import PAGES, pastes

    everything = [paste for page in PAGES for paste in pastes(page)]
    for kind in ("put", "add", "ends", "left_out"):
        for row in SAID[kind]:
            if not any(row in said_of(paste, kind) for paste in everything):
                yield f"{kind}: {row['line']!r} stands on no page{' ' + row['page'] if 'page' in row else ''}"
