"""`outdraft theory`: the table, a record's own figures, the picture, and what it refuses."""

import json
from pathlib import Path

import pytest
from analysis.made_records import make_records, write


def test_table(outdraft):
    ran = outdraft("theory", "--alpha", 0.8, "--cost", 0.1)
    assert ran.code == 0 and "6 -> 2.47x" in ran.out
    made = json.loads(outdraft("theory", "--alpha", 0.8, "--cost", 0.1, "--cost", 0.9, "--json").out)
    assert [cell["best_k"] for cell in made["cells"]] == [6, 0] and made["methods"] == []


def test_of_a_record(outdraft, tmp_path: Path):
    pytest.importorskip("matplotlib")
    records = make_records({"none": 1.0, "ngram k=8": 2.0})
    for record in records:
        if record["kind"] == "row":
            record["config"] = {**record["config"], "policy": {"name": "fixed", "num_speculative_tokens": 8}}
    path = write(tmp_path / "made.jsonl", records)
    ran = outdraft("theory", "--from", path, "--plot", tmp_path / "theory.png")
    assert ran.code == 0 and "Made-up CPU" in ran.out and "ngram k=8" in ran.out and "what was measured" in ran.out
    assert (tmp_path / "theory.png").stat().st_size > 10_000


def test_a_sparse_cache_by_context_and_batch(outdraft, tmp_path: Path):
    words = ("theory", "--budget", 512, "--batch", 1, "--batch", 64, "--context", 32768)
    ran = outdraft(*words)
    assert ran.code == 0 and "6 -> 2.73x" in ran.out and "gains beyond" in ran.out
    made = json.loads(outdraft(*words, "--alpha", 0.0, "--alpha", 0.8, "--json").out)
    assert [(cell["alpha"], cell["batch"], cell["best_k"]) for cell in made["cells"]] == [
        (0.0, 1, 0),
        (0.0, 64, 0),
        (0.8, 1, 1),
        (0.8, 64, 6),
    ]
    assert [one["beyond"] is None for one in made["gains"]] == [True, True, False, False]


def test_a_sparse_cache_on_a_records_machine(outdraft, tmp_path: Path):
    pytest.importorskip("matplotlib")
    path = write(tmp_path / "made.jsonl", make_records({"none": 1.0, "ngram k=8": 2.0}))
    curve = next(record for record in make_records({"none": 1.0}) if record["kind"] == "curve")
    bare = write(tmp_path / "bare.jsonl", [one for one in make_records({"none": 1.0}) if one["kind"] != "curve"])
    assert "--no-curve" in outdraft("theory", "--from", bare, "--budget", 64).err
    ran = outdraft("theory", "--from", path, "--budget", 64, "--plot", tmp_path / "long.png")
    assert ran.code == 0 and f"{curve['bandwidth'] / 1e9:.4g} GB/s" in ran.out
    assert (tmp_path / "long.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "words, says",
    [
        (("--alpha", "1.5"), "alpha=1.5"),
        (("--cost", "-1"), "cost=-1"),
        (("--cost", "inf"), "cost=inf"),
        (("--plot", "x.jpeg"), "x.jpeg"),
        (("--budget", 0), "budget=0"),
        (("--batch", 2), "--budget N too"),
        (("--budget", 9, "--cost", 0.1), "do not go together"),
        (("--budget", 9, "--batch", 0), "batch=0"),
        (("--from", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--plot", "nowhere/x.png"), "nowhere is no directory"),
    ],
)
def test_refusals(outdraft, words: tuple[str, ...], says: str):
    ran = outdraft("theory", *words)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1
    assert not ran.out, "what is refused is refused before the tables"
