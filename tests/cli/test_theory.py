"""`outdraft theory`: the table, a record's own figures, and what it refuses."""

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
    records = make_records({"none": 1.0, "ngram k=8": 2.0})
    for record in records:
        if record["kind"] == "row":
            record["config"] = {**record["config"], "policy": {"name": "fixed", "num_speculative_tokens": 8}}
    path = write(tmp_path / "made.jsonl", records)
    ran = outdraft("theory", "--from", path)
    assert ran.code == 0 and "Made-up CPU" in ran.out and "ngram k=8" in ran.out and "what was measured" in ran.out


@pytest.mark.parametrize(
    "words, says",
    [
        (("--alpha", "1.5"), "alpha=1.5"),
        (("--cost", "-1"), "cost=-1"),
        (("--cost", "inf"), "cost=inf"),
        (("--from", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_refusals(outdraft, words: tuple[str, ...], says: str):
    ran = outdraft("theory", *words)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1
    assert not ran.out, "what is refused is refused before the tables"
