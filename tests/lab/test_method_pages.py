"""Pages of methods: what is written by lab/method_pages.py is current, and every line of it runs as it is printed."""

import json
import re
import shlex
from pathlib import Path

import pytest

from lab import method_pages
from outdraft import zoo
from outdraft.bench import measured
from outdraft.cli.main import main
from outdraft.core.registry import KINDS, names

SHOWN = {name for kind in KINDS for name in names(kind)}
PAGES = [
    pytest.param(name, marks=pytest.mark.slow if "outdraft train" in method_pages.lines(name) else (), id=name)
    for name in sorted(SHOWN)
]


def test_what_is_written_is_current():
    old = [path.name for path, text in method_pages.current() if path.read_text() != text]
    assert not old, f"run: python -m lab.method_pages ({', '.join(old)})"


def test_every_method_is_in_the_table():
    listed = set(re.findall(r"^\| \[(\w+)\]\(methods/\1\.md\)", method_pages.TABLE.read_text(), re.MULTILINE))
    assert listed == SHOWN


def test_a_page_gets_its_lines_behind_its_first_paragraph():
    text = "# ngram: look up\n\nNo model.\nTwo lines.\n\n## Options\n"
    made = method_pages.page("ngram", text)
    assert made == text.replace("\n## Opt", f"\n{method_pages.block('ngram')}\n## Opt")
    assert method_pages.page("ngram", made) == made
    assert method_pages.page("ngram", made.replace("--drafter ngram", "--drafter no")) == made
    assert method_pages.page("ngram", "# ngram\n").startswith("# ngram\n\n<!--")


def test_what_was_measured_is_said(tmp_path: Path, monkeypatch, request):
    path = tmp_path / "measured.json"
    rows = {"ngram": {"GSM8K": {"tau": 1.7, "speedup": 1.3}, "HumanEval": {"tau": 2.1, "speedup": 1.48}}}
    path.write_text(json.dumps({"target": "smollm2", "machine": "two cores", "made": "2026-11-28", "rows": rows}))
    monkeypatch.setattr(measured, "FILE", path)
    request.addfinalizer(measured.read_measured.cache_clear)
    measured.read_measured.cache_clear()
    assert "1.48x HumanEval, 1.30x GSM8K; tokens a pass: 1.70 on GSM8K, 2.10 on HumanEval" in method_pages.block(
        "ngram"
    )
    assert "not measured" in method_pages.block("suffix") and "real model" not in method_pages.block("fixed")
    assert "| 1.48x HumanEval, 1.30x GSM8K |" in method_pages.table("")


@pytest.fixture
def place(tmp_path: Path, monkeypatch, capsys) -> Path:
    """A directory with the files that pages name: answers, texts, notes."""
    texts = [
        json.loads(line)["prompt"] for line in (zoo.path("target").parent / "heldout.jsonl").read_text().splitlines()
    ]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps({"text": text * 2}) + "\n" for text in texts))
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    (tmp_path / "notes.txt").write_text(texts[0])
    monkeypatch.setenv("OUTDRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", PAGES)
def test_every_line_runs(name: str, place: Path, capsys):
    """The commands, then the Python, pasted."""
    text = (method_pages.PAGES / f"{name}.md").read_text()
    lines = text[text.index(method_pages.START) : text.index(method_pages.END)]
    (commands,) = re.findall(r"```bash\n(.*?)```", lines, re.DOTALL)
    for command in commands.splitlines():
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    assert " a pass), " in shown.err and len(shown.out.split()) > 20
    (program,) = re.findall(r"```python\n(.*?)```", lines, re.DOTALL)
    exec(program, {})
    assert len(capsys.readouterr().out.split()) > 20
