"""Texts are compared by their first difference, records go on where they ended, and tables count what the lines say."""

import json

import pytest
import torch

from lab.bench.peers import real_table
from lab.bench.peers.setups import STORED, Setup, read_places
from lab.bench.peers.texts import Record, differences, first_difference, says
from lab.bench.same_ids import closest, compare
from lab.bench.same_ids import says as says_ids
from lab.bench.same_texts import KEPT, line_up, main, table
from outdraft.options.errors import ConfigError

PLAIN = Setup(engine="llama_cpp", weights=STORED)
DRAFT = Setup(engine="llama_cpp", weights=STORED, mode="assisted", k=4)


@pytest.mark.parametrize(
    ("mine", "other", "index"),
    [([1, 2, 3], [1, 2, 3], None), ([1, 2, 3], [1, 5, 4], 1), ([1, 2], [1, 2, 3], 2), ([], [], None), ([7], [], 0)],
)
def test_first_difference(mine, other, index):
    assert first_difference(mine, other) == index == first_difference(other, mine)


def test_differences_in_words():
    assert says({"a": None, "b": None}) == "0 of 2"
    found = differences({"a": [1, 2], "b": [1, 3], "c": [4, 2], "d": [9]}, {"a": [1, 2], "b": [1, 2], "c": [1, 2]})
    assert found == {"a": None, "b": 1, "c": 0} and says(found) == "2 of 3, from token 0 on, median 0.5"


def test_a_record_goes_on(tmp_path):
    path = tmp_path / "record.jsonl"
    Record(path, {"tokens": 2}).add(PLAIN, "a 1", {"tokens": [1, 2]})
    again = Record(path, {"tokens": 2})
    again.add(DRAFT, "a 1", {"tokens": [1, 3]})
    assert again.texts() == {PLAIN: {"a 1": [1, 2]}, DRAFT: {"a 1": [1, 3]}}
    assert [json.loads(line) for line in path.read_text().splitlines()][1:] == again.lines
    with pytest.raises(ConfigError, match="was made otherwise"):
        Record(path, {"tokens": 3})


def test_the_table_of_texts():
    lines = [{"setup": ["llama_cpp", STORED, "plain", 0], "prompt": "a", "tokens": [1, 2]}]
    lines += [{"setup": ["llama_cpp", STORED, "assisted", 4], "prompt": "a", "tokens": [1, 3]}]
    assert "| llama.cpp, as stored: draft model, k = 4 | 1 of 1, from token 1 on, median 1 |" in table(lines)
    assert table(lines[1:]).count("\n") == 2, "without its own plain decoding there is nothing to compare with"


def test_every_draft_is_compared_with_the_same_engine_alone():
    setups = line_up(["outdraft", "llama_cpp", "transformers"])
    assert {setup.alone for setup in setups} == {setup for setup in setups if setup.mode == "plain"}
    assert len(setups) == len(set(setups)) == 14


@pytest.mark.skipif(not KEPT.exists(), reason="no record is kept")
def test_ours_never_differ_in_the_kept_record(capsys):
    assert main([]) == 0
    ours = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| outdraft")]
    assert len(ours) == 6 and all("| 0 of 25 |" in line for line in ours)


def test_places_of_engines():
    assert read_places(["vllm=/a/python"]) == {"vllm": "/a/python"}
    with pytest.raises(ConfigError, match="ENGINE=PATH"):
        read_places(["vlm=/a/python"])


def line(mode, prompt, seconds, tokens=(1, 2), number=0, engine="outdraft"):
    told = {"tokens": list(tokens), "seconds": seconds, "first_seconds": 0.1, "passes": 1, "round": number}
    return {"setup": [engine, STORED, mode, 0], "prompt": prompt, **told}


def test_speeds_are_ratios_to_the_quicker_plain_decoding():
    lines = [line("plain", "gsm8k 1", seconds, engine="llama_cpp") for seconds in (1.0, 8.0, 2.0)]
    lines += [line("plain", "gsm8k 1", 4.0), line("plain", "mt-bench 1", 4.0)]
    lines += [line("plain", "mt-bench 1", 2.0, engine="llama_cpp"), line("ngram", "gsm8k 1", 1.0, (1, 3))]
    lines += [line("ngram", "mt-bench 1", 4.0), line("ngram", "humaneval 9", 4.0)]
    titles, _, *rows = [row.split(" | ") for row in real_table.table(lines).splitlines()]
    assert titles[2] == "times llama.cpp, as stored: plain"
    assert [row[1:6] for row in rows] == [
        ["1", "1.00", "1.00", "1.00", ""],
        ["0", "0.50", "0.50", "0.50", ""],
        ["1", "0.80", "0.50", "2.00", ""],
    ]
    assert rows[2][7:] == ["2.00", "1 of 2, from token 1 on, median 1 |"]


def test_no_question_is_answered_by_all():
    lines = [line("plain", "gsm8k 1", 1.0), line("ngram", "gsm8k 2", 1.0)]
    assert real_table.table(lines) == "no question has been answered by every setup yet\n" == real_table.table([])


def test_ids_and_margins():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 1.5, 0.0], [0.0, 0.0, 4.0]])
    assert compare(logits, [1, 0, 2]) is None and closest(logits) == 0.5
    apart = compare(logits, [1, 1, 2])
    assert apart == {"index": 1, "ours": 1, "theirs": 0, "margin": 0.5}
    found = [{"apart": None, "drafted": None, "closest": 0.25}, {"apart": apart, "drafted": 3, "closest": 0.5}]
    told = says_ids(found)
    assert "1 of 2 texts are transformers' own; 1 of 2 are the same with drafts" in told
    assert "are 0.250000 apart" in told and "token 1 on another text: its logits differ by 0.500000" in told
