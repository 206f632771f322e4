"""Every command and every program of README.md and of the pages in docs is pasted, in its order, and ends well.

What runs otherwise, and what is not run at all, stands in page_commands.toml with its reason. README.zh.md has the
commands of README.md (test_readme_zh.py).
"""

import contextlib
from pathlib import Path

import pytest
from page_blocks import PAGES, ROOT, Paste, pastes
from page_run import SAID, Reader, fill, left_out, stale


def marked(page: Path):
    """Slow: pages that train, and pages of methods, whose first lines tests/lab/test_method_pages.py runs."""
    name = page.relative_to(ROOT).as_posix()
    trains = any(one.text.startswith("outdraft train ") for one in runs(page))
    slow = trains or name in SAID["slow"] or name.startswith("docs/methods/")
    return pytest.param(page, marks=pytest.mark.slow if slow else (), id=name)


def runs(page: Path) -> list[Paste]:
    return [one for one in pastes(page) if not left_out(one)]


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if runs(page)])
def test_a_page_can_be_pasted(page: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_COLOR", "1")
    fill(tmp_path, page)
    with contextlib.ExitStack() as cleanup:
        reader = Reader(tmp_path, capsys, cleanup)
        for one in runs(page):
            reader.paste(one)


def test_the_table_names_what_stands():
    assert not list(stale())
    assert all(row["why"] for kind in ("put", "add", "ends", "left_out") for row in SAID[kind])
    assert {row["needs"] for row in SAID["left_out"]} <= {
        *"gpu network program hours root checkout sketch file smollm2".split()
    }
