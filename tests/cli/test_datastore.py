"""`outdraft datastore`: made, described; errors are one line."""

import json
from pathlib import Path

import pytest

from outdraft import LLM, SamplingParams

TEXT = "the quick brown fox jumps over the lazy dog. " * 8


@pytest.fixture
def store(outdraft, tiny: Path, tmp_path: Path) -> Path:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/fox.txt").write_text(TEXT)
    plain = LLM(str(tiny), drafter="none").generate("abc", SamplingParams(max_tokens=20))
    (tmp_path / "answers.jsonl").write_text(json.dumps({"token_ids": [97, 98, 99, *plain.token_ids]}) + "\nbroken\n")
    ran = outdraft(
        "datastore",
        "build",
        tmp_path / "store",
        "--model",
        tiny,
        "--data",
        tmp_path / "texts",
        "--from-outputs",
        tmp_path / "answers.jsonl",
        "--json",
    )
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["num_documents"] == 2 and told["num_tokens"] == len(TEXT) + 25 and told["num_bytes"] > 8 * 300
    assert len(told["skipped"]) == 1 and "left out" in ran.err and "line 2" in ran.err
    assert told["sort_seconds"] > 0 and told["peak_rss_bytes"] > 0
    return tmp_path / "store"


def test_what_it_says(outdraft, store: Path):
    ran = outdraft("datastore", "info", store)
    assert ran.code == 0 and "tokens in 2 documents" in ran.out and "\x1b" not in ran.out
    assert json.loads(outdraft("datastore", "info", store, "--json").out)["vocab_size"] == 257


def test_the_indices_are_timed(store: Path, capsys):
    from lab.bench import indices

    indices.main([str(store), "--queries", "20", "--tokens", "200"])
    told = json.loads(capsys.readouterr().out)
    assert told["datastore"]["queries"] == 20 and told["datastore"]["mean_hits"] >= 1
    assert [row["depth"] for row in told["suffix_tree"]] == [16, 32, 64, 128]
    assert all(row["append_us"] > 0 and row["look_up_us"]["p99"] > 0 for row in told["suffix_tree"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "it needs an action: build, info"),
        (("make", "HERE/new"), "'make' is no action"),
        (("build",), "needs a file: outdraft datastore build FILE"),
        (("info", "HERE/none", "--model", "TINY"), "unrecognized argument '--model'"),
        (("build", "HERE/new"), "needs --model"),
        (("build", "HERE/new", "--model", "TINY"), "needs texts"),
        (("build", "HERE/new", "--model", "TINY", "--text", "HERE/none.txt"), "none.txt: no such file"),
        (("build", "HERE/new", "--model", "TINY", "--text", "HERE/empty.txt"), "hold no token"),
        (("info", "HERE/none"), "outdraft datastore build"),
        (("info", "HERE/empty.txt"), "is no datastore"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(outdraft, tiny: Path, tmp_path: Path, words, says):
    (tmp_path / "empty.txt").write_text("")
    ran = outdraft("datastore", *(w.replace("HERE", str(tmp_path)).replace("TINY", str(tiny)) for w in words))
    assert ran.code == 2 and ran.out == "" and ran.err.count("\n") == 1
    assert says in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["empty.txt"]
