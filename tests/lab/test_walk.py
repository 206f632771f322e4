"""What a plain text walks through has a ceiling, in files and in lines."""

import pytest

from lab.walk import measure, walked
from outdraft import SamplingParams
from outdraft.options.shown import shown

MOST = {  # function -> call -> files, lines, ways; they only fall
    "": {"LLM()": (54, 7_740, 120), "generate": (41, 5_000, 111)},
    "make_engine": {"LLM()": (33, 4_851, 34), "generate": (0, 0, 0)},
    "step": {"LLM()": (0, 0, 0), "generate": (25, 3_250, 75)},
}


@pytest.mark.parametrize("within", MOST)
def test_a_plain_text_walks_no_further_than_it_did(within):
    for name, walk in measure("none", within).items():
        found, most = (len(walk.files), walk.num_lines, len(walk.ways)), MOST[within][name]
        assert all(one <= limit for one, limit in zip(found, most, strict=True)), f"{name}: {found} beyond {most}"
        assert len({*walk.files}) == len(walk.files) >= 0.9 * most[0], "a ceiling far above what is walked"


def test_files_are_entered_and_returned_to():
    result, walk = walked(lambda: shown("a"))
    assert result == "'a'" and walk.files == ["options/shown.py"] and (walk.num_calls, walk.num_returns) == (1, 0)
    _, walk = walked(lambda: (shown("a"), SamplingParams(), shown("b")))
    assert walk.files[:2] == ["options/shown.py", "options/params.py"] and walk.num_returns > 0
    assert walk.num_lines > 100 and len(walk.ways) == walk.num_returns == 1


def test_within_a_function():
    def inner():
        return shown("a")

    def outer():
        return SamplingParams(), inner(), SamplingParams()

    _, walk = walked(outer, within="inner")
    assert walk.files == ["options/shown.py"] and walk.num_calls == 1


def test_what_an_import_runs_is_not_counted(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "walks_when_imported.py").write_text("from outdraft.options.shown import shown\nX = shown('a')\n")
    assert walked(lambda: __import__("walks_when_imported"))[1].files == ["options/shown.py"], (
        "a stranger's import is a call"
    )
