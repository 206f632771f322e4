"""A load's record to cells and a table, on made-up lines whose answers are known."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from analysis.made_records import MACHINE, MODEL, SAMPLING, make_records, write

from outdraft.analysis.lines import holds_kind
from outdraft.analysis.load import LoadRow, read_load, summarise_load
from outdraft.analysis.load_sheet import load_sheet
from outdraft.analysis.sheet import to_csv, to_markdown
from outdraft.bench.load.row import MeasuredLoad as Written
from outdraft.options.errors import ConfigError


def line(method: str, clients: int, *, speed: float = 1.0, **changes: Any) -> dict[str, Any]:
    plain = [2.0, 4.0, 2.5]
    return {
        "kind": "load",
        "key": f"{method} {clients}",
        "method": method,
        "clients": clients,
        "jobs": "one",
        "num_requests": 2,
        "identical": True,
        "difference": None,
        "num_agreeing": None,
        "tau": 2.5,
        "tokens": [100] * 3,
        "seconds": [seconds / speed for seconds in plain],
        "plain_tokens": [100] * 3,
        "plain_seconds": plain,
        "work_seconds": [3.0, 1.0, 2.0],
        "plain_work_seconds": [6.0, 3.0, 4.0],
        "first_token_seconds": [[0.1, 0.2], [0.1, 0.2], [0.1, 1.0]],
        "token_seconds": [[0.01, 0.03], [0.02], []],
        "gap_quantiles": [{"0.5": 0.02, "0.99": 0.3}, {}, {"0.5": 0.04, "0.99": 0.5}],
        "when": "2026-11-24T00:00:00+00:00",
        "load": 0.4,
        "model": MODEL,
        "machine": MACHINE,
        "config": {"dtype": "bfloat16"},
        "sampling": SAMPLING,
        **changes,
    }


def test_every_key_that_is_read_is_written():
    common = {"key", "when", "load", "model", "machine", "config", "sampling", "engine"}
    assert {one.name for one in fields(LoadRow)} <= {one.name for one in fields(Written)} | common


def test_cells(tmp_path: Path):
    lines = [line("ngram k=8", 4, speed=2.0), line("none", 4, tau=1.0), line("none", 1), line("ngram k=8", 1)]
    records = read_load(write(tmp_path / "a.jsonl", lines))
    cells = summarise_load(records)
    assert [(cell.clients, cell.method) for cell in cells] == [
        (1, "none"),
        (1, "ngram k=8"),
        (4, "none"),
        (4, "ngram k=8"),
    ]
    assert records.levels == [1, 4] and records.num_others == 0
    plain, fast = cells[2:]
    assert (plain.tokens_per_second, plain.speedup) == (40.0, 1.0)
    assert fast.tokens_per_second == 80.0 and fast.speedup == 2.0 and fast.slowest == 2.0
    assert fast.by_work == 2.0, "the median of 2, 3 and 2"
    assert fast.first_token == pytest.approx(0.15) and fast.first_token_p99 == pytest.approx(0.96)
    assert fast.gap == pytest.approx(0.03) and fast.gap_p99 == pytest.approx(0.4) and fast.token == pytest.approx(0.02)


def test_a_speed_up_is_of_its_own_round(tmp_path: Path):
    """A round that took everybody twice as long changes nothing; one that took us alone so long does."""
    even = line("x", 1, seconds=[1.0, 2.0, 1.25])
    odd = line("x", 2, seconds=[1.0, 4.0, 1.25])
    cells = summarise_load(read_load(write(tmp_path / "a.jsonl", [even, odd])))
    assert [(cell.speedup, cell.slowest) for cell in cells] == [(2.0, 2.0), (2.0, 1.0)]


def test_setups_and_requests_are_not_mixed(tmp_path: Path):
    lines = [
        line("none", 1, machine=MACHINE | {"cores": 64}),
        line("none", 4, engine={"max_num_seqs": 2}),
        line("ngram", 1),
        line("none", 1),
        line("none", 1, jobs="two"),
        line("none", 4),
    ]
    records = read_load(write(tmp_path / "a.jsonl", lines))
    assert [(row.method, row.clients, row.jobs) for row in records.rows] == [("none", 1, "two"), ("none", 4, "one")]
    assert records.num_others == 4


def test_failed_and_foreign_rows(tmp_path: Path):
    lines = [
        line("none", 2),
        line("liar", 2, identical=False, difference="round 1, request 0: token 3 is 4"),
        line(
            "llama",
            2,
            identical=None,
            num_agreeing=1,
            tau=None,
            work_seconds=None,
            gap_quantiles=[{}, {}, {}],
            token_seconds=[[]] * 3,
        ),
    ]
    records = read_load(write(tmp_path / "a.jsonl", lines))
    cells = summarise_load(records)
    assert cells[1].speedup is None and cells[1].slowest is None
    sheet = load_sheet(records, cells)
    assert "2 clients at once" in sheet.title and "texts of 1 of 1 rows DIFFER" in sheet.title
    by_name = {row[1]: row for row in sheet.rows}
    assert by_name["liar"][3] == "FAILED" and by_name["liar"][-1] == "NO"
    assert by_name["llama"][-1] == "1 of 2" and by_name["llama"][-2] == "?" and by_name["llama"][8:11] == ["", "", ""]
    assert by_name["llama"][5] == "" and by_name["none"][5] == "2.00x"
    assert any(note == "liar with 2 clients FAILED: round 1, request 0: token 3 is 4" for note in sheet.notes)
    text = to_markdown(sheet)
    assert "zoo:target, 15.7M parameters, bfloat16" in text and "Made-up CPU" in text
    assert to_csv(sheet).splitlines()[0].split(",")[:4] == ["clients", "method", "tokens /s", "over plain"]


def test_few_rounds_are_said(tmp_path: Path):
    whole = line("x", 1)
    few = {name: value[:2] for name, value in whole.items() if name.endswith(("tokens", "_seconds", "seconds"))}
    records = read_load(write(tmp_path / "a.jsonl", [line("x", 1, **few)]))
    assert any("INCONCLUSIVE: 2 of at least 3" in note for note in load_sheet(records, summarise_load(records)).notes)


def test_which_kinds_a_file_holds(tmp_path: Path):
    both = write(tmp_path / "both.jsonl", [*make_records(), line("none", 1)])
    assert holds_kind(both, "load") and holds_kind(both, "row") and len(read_load(both).rows) == 1
    alone = write(tmp_path / "alone.jsonl", [line("none", 1)])
    assert holds_kind(alone, "load") and not holds_kind(alone, "row") and not holds_kind(tmp_path / "nowhere", "load")


def test_damaged_files(tmp_path: Path):
    file = write(tmp_path / "a.jsonl", [line("none", 1), line("none", 2)])
    whole = file.read_text()
    file.write_text(whole[:-40])
    assert len(read_load(file).rows) == 1, "a line that was cut off"
    file.write_text(whole.replace('"clients": 1', '"client": 1'))
    with pytest.raises(ConfigError, match="line 1 is no record"):
        read_load(file)
    with pytest.raises(ConfigError, match="holds no finished load; measure one"):
        read_load(write(tmp_path / "b.jsonl", make_records()))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_load(tmp_path / "nowhere")
