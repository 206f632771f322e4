"""The record of the mutation run: its score is counted right, and what is called equivalent has a reason."""

from math import comb

import pytest
from mutation.record import MOST_EQUIVALENT, Record, score, wilson

VERDICTS = {"killed", "survived", "untested", "equivalent"}


def test_every_entry_is_whole():
    record = Record()
    assert {one["verdict"] for one in record.known.values()} <= VERDICTS
    assert all(len(one["why"]) > 20 for one in record.known.values() if one["verdict"] == "equivalent")


def test_few_are_called_equivalent():
    entries = list(Record().known.values())
    equivalent = [one for one in entries if one["verdict"] == "equivalent"]
    assert len(equivalent) <= MOST_EQUIVALENT * max(len(entries), 20)


def test_a_later_line_counts_and_the_file_goes_on(tmp_path):
    record = Record(tmp_path / "record.jsonl")
    entry = {"area": "verify", "key": "a", "verdict": "survived", "why": "9 tests"}
    record.add(entry)
    record.add({**entry, "verdict": "killed"})
    again = Record(record.path)
    assert [one["verdict"] for one in again.of("verify")] == ["killed"]
    again.rewrite()
    assert len(record.path.read_text().splitlines()) == 1


@pytest.mark.parametrize("trials", [10, 40])
def test_the_interval_holds_the_share_that_it_should(trials):
    """Over all outcomes of a true share of 0.9 the interval holds it about 95 times of a hundred."""
    held = sum(
        comb(trials, k) * 0.9**k * 0.1 ** (trials - k)
        for k in range(trials + 1)
        if wilson(k, trials)[0] <= 0.9 <= wilson(k, trials)[1]
    )
    assert 0.9 < held < 0.99
    assert wilson(0, 0) == (0.0, 1.0)


def test_equivalent_mutants_are_no_part_of_the_score():
    entries = [{"verdict": verdict} for verdict in ("killed", "killed", "survived", "untested", "equivalent")]
    assert score(entries).startswith("2 of 4 killed, 50%")
