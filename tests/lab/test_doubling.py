"""What the record of a doubling says of planted sizes, that it is gone on with, and that its table names what fell."""

import json
from pathlib import Path

import pytest

from lab.abuse.doubling import judged
from lab.abuse.grow import LENGTH
from lab.abuse.harmless import MOST_TOKENS, Harmless
from lab.abuse.look import quantile
from lab.abuse.record import Record
from lab.abuse.table import table
from outdraft.options.errors import ConfigError


def size(number: int, status: int = 200, **more: object) -> dict[str, object]:
    return {"size": number, "status": status, "ratio": 1.0, "kept_mib": 0.5, "peak_mib": 3, "cpu": 0.1, **more}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (size(4, ratio=3.2), "3.2 times the gap"),
        (size(4, kept_mib=201.0), "201 MiB stay"),
        (size(4, 0, faults=["no answer in 30 s"]), "no answer"),
        (size(4, fault="the server has ended"), "has ended"),
        (size(4, 500, faults=["status 500"]), "status 500"),
    ],
)
def test_what_did_not_hold_is_reported_with_its_size(row, says):
    told = judged([size(1), size(2), row])["wrong"]
    assert len(told) == 1 and says in told[0]


def test_what_holds_tells_its_limit():
    told = judged([size(1), size(2, ratio=2.9, kept_mib=199.0), size(4, 400, said="too large: send less")])
    assert (told["largest_taken"], told["refused_at"], told["refused_with"]) == (2, 4, 400)
    assert told["wrong"] == [] and told["refusal"].startswith("too large")


def test_a_record_is_gone_on_with_and_not_mixed(tmp_path: Path):
    path = tmp_path / "doubling.jsonl"
    Record(path, {"step": 1}).add({"name": "a", "how": "length"})
    with path.open("a") as file:
        file.write('{"name": "half')  # the process ended here
    assert [row["name"] for row in Record(path, {"step": 1}).rows] == ["a"]
    with pytest.raises(ConfigError, match="take another file"):
        Record(path, {"step": 2})


def test_the_table_begins_with_what_did_not_hold(tmp_path: Path):
    record = Record(tmp_path / "doubling.jsonl", {})
    for name, rows in (("A.a", [size(1)]), ("B.b", [size(1, ratio=9.0)])):
        record.add({"name": name, "how": "length", "pair": False, **judged(rows)})
    lines = table(tmp_path / "doubling.jsonl").splitlines()
    assert lines[0].startswith("2 measured") and "1 did not hold" in lines[0]
    assert "`B.b`" in lines[4] and "9.0 times" in lines[4] and "held" in lines[5]


def test_a_harmless_load_costs_as_much():
    harmless = Harmless(begin=0.01, token=0.002)
    assert harmless.tokens(0.21) == 100 and harmless.tokens(0.42, texts=2) == 100
    assert harmless.tokens(0.0) == 1 and harmless.tokens(99.0) == MOST_TOKENS


def test_sizes_are_doubled_and_a_hundredth_is_one_in_a_hundred():
    assert LENGTH.sizes()[:4] == [64, 128, 256, 512] and LENGTH.sizes()[-1] == LENGTH.most
    assert quantile([float(i) for i in range(200)], 0.99) == 198 and quantile([], 0.99) == 0


def test_every_size_of_a_record_is_json(tmp_path: Path):
    assert json.loads(json.dumps(judged([size(1)])))
