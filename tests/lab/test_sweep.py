"""The harness of the sweeps: each bad end is named, a lost process costs one case, a journal is gone on with."""

import os
import sys
from pathlib import Path

import pytest

from lab.sweep import run
from lab.sweep.case import Case, judge
from lab.sweep.run import main, sweep
from outdraft.options.errors import DecodingError

PLANTED = """
import ctypes, logging
from outdraft.options.errors import ConfigError
from lab.sweep.case import Case

def refuse(): raise ConfigError("no")
def foreign(): raise AttributeError("oh")
def hang():
    while True: pass
def crash(): ctypes.string_at(8)
def hoard(): bytearray(1 << 40)
def survive():
    try: foreign()
    except AttributeError as error: logging.getLogger("outdraft.decode").warning("oh", exc_info=error)
def load(directory, seed):
    ends = [lambda: 1, refuse, foreign, hang, crash, hoard, lambda: print("not an answer"), survive]
    return lambda number: Case(name=f"{seed} {number}", run=ends[number])
"""


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "planted_cases.py").write_text(PLANTED)
    inherited = [path for path in sys.path if path]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *inherited]))
    return "planted_cases"


def test_every_end_is_named_and_kept(planted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    verdicts = list(sweep(planted, iter(range(8)), seconds=0.2))
    ends = [verdict.end for verdict in verdicts]
    assert ends == ["accepted", "refused", "foreign", "hang", "crash", "foreign", "accepted", "foreign"]
    assert verdicts[2].said == "AttributeError: oh" and verdicts[5].said.startswith("MemoryError")
    journal = tmp_path / "journal.jsonl"
    assert main(planted, 2, ["--journal", str(journal)]) == 0
    assert main(planted, 3, ["--journal", str(journal)]) == 1
    assert "foreign 2: 0 2" in capsys.readouterr().out
    assert len(journal.read_text().splitlines()) == 4, "what was judged before is not judged again"
    assert main(planted, 3, ["--journal", str(journal)]) == 1, "nor forgotten"
    assert len(journal.read_text().splitlines()) == 4


def test_a_journal_of_something_else_is_not_gone_on_with(
    planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Verdicts on other cases, or on an older source, say nothing of these."""
    words = ["--journal", str(tmp_path / "journal.jsonl")]
    assert main(planted, 1, words) == 0
    with pytest.raises(SystemExit, match="2"):
        main("another_module", 1, words)
    monkeypatch.setattr(run, "digest_source", lambda: "0" * 16)
    with pytest.raises(SystemExit, match="2"):
        main(planted, 1, words)
    assert capsys.readouterr().err.count("take another file, or remove it") == 2


def test_what_breaks_in_mid_request_is_no_refusal():
    def broken() -> None:
        raise DecodingError("decoding broke: TypeError")

    assert judge(0, Case(name="planted", run=broken)).end == "foreign"
