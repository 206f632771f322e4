"""A plug-in that is a file in the working directory: docs/add_a_method.md's example and its commands, as printed."""

import re
import shlex
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/add_a_method.md").read_text()


def block(kind: str, after: str) -> str:
    return re.search(rf"```{kind}\n(.*?)```", PAGE[PAGE.index(after) :], re.DOTALL).group(1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch) -> Path:
    """A directory with the page's drafter, which nothing else leads to."""
    (tmp_path / "echo.py").write_text(block("python", "## 1. The source file"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    monkeypatch.delitem(sys.modules, "echo", raising=False)
    monkeypatch.setenv("OUTDRAFT_CACHE", "off")
    return tmp_path


def test_the_commands_of_the_page(outdraft, here: Path):
    commands = block("bash", "Before there is a package").splitlines()
    shown = [outdraft(*shlex.split(command)[1:]) for command in commands]
    assert [ran.code for ran in shown] == [0, 0, 0], [ran.err for ran in shown]
    assert "echo:METHOD (drafter): repeat the last tokens" in shown[0].out and "period = 2" in shown[0].out
    assert " a pass), " in shown[1].err and "echo:METHOD k=4" in shown[2].out


def test_only_a_module_that_is_there_is_looked_for(outdraft, here: Path):
    assert "cannot be imported" in (ran := outdraft("methods", "ecko:METHOD")).err and ran.code == 2
    assert str(here) not in sys.path
    outdraft("methods", "echo:METHOD")
    assert sys.path[-1] == str(here)  # last: it hides nothing
