"""Records to cells and tables, on made-up files whose answers are known."""

import json
from dataclasses import fields, replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from analysis.made_records import BY_SUITE, SPEEDS, make_records, write

from outdraft.analysis.advice import advise
from outdraft.analysis.bootstrap import Interval, paired_ratio
from outdraft.analysis.picture import picture
from outdraft.analysis.records import Row, read_records
from outdraft.analysis.sheet import to_csv, to_markdown
from outdraft.analysis.summary import ALL, summarise
from outdraft.analysis.tables import curve_sheet, speed_sheet, time_sheet
from outdraft.analysis.theory import best_length, expected_speedup, expected_tokens
from outdraft.analysis.words import how_measured, what_measured, where_measured
from outdraft.bench.row import MeasuredRow as Written
from outdraft.options.errors import ConfigError


@pytest.fixture
def record_file(tmp_path: Path) -> Path:
    return write(tmp_path / "made.jsonl", make_records())


def test_every_key_that_is_read_is_written():
    common = {"key", "when", "load", "model", "machine", "config", "sampling"}
    assert {one.name for one in fields(Row)} <= {one.name for one in fields(Written)} | common


def test_a_prompt_may_hold_what_other_programs_take_for_a_line_end(tmp_path: Path):
    file = tmp_path / "made.jsonl"
    rows = [{**row, "prompt": "a\u2028b"} for row in make_records()]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    assert {row.prompt for row in read_records(file).rows} == {"a\u2028b"}


def test_intervals_hold_the_truth_and_narrow():
    rng = np.random.default_rng(1)
    widths = []
    for count in (4, 40):
        plain = rng.uniform(0.9, 1.1, (count, 5))
        found = paired_ratio(plain, plain / 2 * rng.uniform(0.95, 1.05, (count, 5)))
        assert found.low <= found.value <= found.high and not found.excludes(2.0)
        widths.append(found.high - found.low)
    assert widths[1] < widths[0]
    same = paired_ratio(plain, plain)
    assert (same.low, same.value, same.high) == (1, 1, 1)


def test_rounds_are_paired():
    """A round that took ten times as long for everybody changes no paired ratio."""
    plain = np.ones((3, 5))
    plain[:, 2] = 10
    assert paired_ratio(plain, plain / 3).high == pytest.approx(3)


def test_cells(record_file: Path):
    cells = summarise(read_records(record_file))
    by_name = {(cell.method, cell.group): cell for cell in cells}
    assert cells[0].method == "none" and len(by_name) == len(SPEEDS) * (1 + len(BY_SUITE))
    plain = by_name["none", ALL]
    assert plain.speedup is not None and plain.speedup.value == 1 and plain.tau == 1
    assert plain.acceptance_by_position == []
    ngram = by_name["ngram k=8", "copy"]
    assert ngram.speedup is not None and ngram.speedup.value == pytest.approx(2.2 * 1.4, rel=0.05)
    assert len(ngram.acceptance_by_position) == 8 and ngram.acceptance_by_position[0] == pytest.approx(0.8)
    assert sum(ngram.split.values()) == pytest.approx(1) and ngram.num_prompts == 3
    assert by_name["eagle k=5", ALL].num_compared == 12


def test_a_rate_never_contradicts_its_speed_up(tmp_path: Path):
    """Rounds of very unequal length: the ratio of medians is not the median of ratios."""
    records = make_records({"none": 1.0, "ngram k=8": 1.0}, {"prose": 1.0}, prompts=1, noise=0.0)
    for record in records:
        if record["kind"] == "row":
            record |= {"plain_seconds": [1.0, 2.0, 9.0], "seconds": [1.0, 2.0, 9.0]}
        if record.get("method") == "ngram k=8":
            record["seconds"] = [1.2, 1.9, 10.5]  # ratios 0.83, 1.05, 0.86; medians 2.0 and 1.9
    plain, mine = (cell for cell in summarise(read_records(write(tmp_path / "a.jsonl", records))) if cell.group == ALL)
    assert mine.speedup.value < 1
    assert mine.tokens_per_second / plain.tokens_per_second == pytest.approx(mine.speedup.value)


def test_the_default_is_the_first_row_after_plain(tmp_path: Path):
    made = make_records({"ngram k=8": 2.0, "default": 1.0, "none": 1.0}, {"prose": 1.0})
    cells = summarise(read_records(write(tmp_path / "a.jsonl", made)))
    assert list(dict.fromkeys(cell.method for cell in cells)) == ["none", "default", "ngram k=8"]


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ({"default": (1.1, 1.3), "ngram k=8": (1.2, 1.5)}, "on this machine: default 1.20x plain; nothing to set"),
        (
            {"default": (1.0, 1.2), "ngram k=4 max_ngram=4": (1.25, 1.35)},
            "take ngram k=4 max_ngram=4: 1.30x plain, the default had 1.10x: "
            "--drafter ngram -k 4 --drafter-options max_ngram=4",
        ),
        (
            {"default": (0.9, 1.1), "ngram": (1.05, 1.15)},
            "on this machine: default 1.00x plain, and no method is surely",
        ),
        ({"default": (0.8, 0.9), "ngram": (0.6, 0.7)}, "plain decoding is fastest here: default 0.85x: --drafter none"),
        (
            {"default": (0.9, 1.1), "ngram": (0.6, 0.7)},
            "no method is surely faster than plain decoding here (best: defa",
        ),
        ({"ngram": (0.8, 0.9), "sam": (0.6, 0.7)}, "plain decoding is fastest here: ngram: 0.85x: --drafter none"),
        ({"ngram": (1.1, 1.3)}, "take ngram: 1.20x plain: --drafter ngram"),
    ],
)
def test_the_advice_respects_the_ranges(tmp_path: Path, ranges: dict[str, tuple[float, float]], says: str):
    made = write(tmp_path / "a.jsonl", make_records({"none": 1.0} | dict.fromkeys(ranges, 1.0), {"prose": 1.0}))
    cells = [
        replace(cell, speedup=Interval(value=sum(own) / 2, low=own[0], high=own[1]))
        for cell in summarise(read_records(made))
        if (own := ranges.get(cell.method, (1.0, 1.0)))
    ]
    assert advise(cells).startswith(says)
    lossy = [replace(cell, lossless=False) for cell in cells]
    assert advise(lossy) == "" and "at least 3" in advise([replace(cell, num_rounds=2) for cell in cells])


def test_unequal_texts_are_compared_by_the_token(tmp_path: Path):
    """Half the tokens in half the time is no gain."""
    records = make_records({"none": 1.0, "ngram k=8": 2.0}, {"prose": 1.0}, noise=0.0, identical=None)
    for record in records:
        if record.get("method") == "ngram k=8":
            record["tokens"] = [32] * 3
    cell = summarise(read_records(write(tmp_path / "a.jsonl", records)))[-1]
    assert cell.speedup is not None and cell.speedup.value == pytest.approx(1.0)


def test_a_failed_row_takes_the_speedup_away(tmp_path: Path):
    records = make_records()
    records[1] |= {"identical": False, "difference": "token 3 is 1, plain decoding's is 2"}
    cells = summarise(read_records(write(tmp_path / "a.jsonl", records)))
    failed = [cell for cell in cells if cell.failed]
    assert {cell.group for cell in failed} == {ALL, "copy"} and all(cell.speedup is None for cell in failed)
    sheet = speed_sheet(cells, "t")
    assert any("FAILED: copy 1: token 3" in note for note in sheet.notes)
    row = next(row for row in sheet.rows if row[0] == failed[0].method)
    assert "FAILED" in row and "NO, 1 of 12" in row


def test_a_range_that_decides_nothing_is_named(tmp_path: Path):
    """At par with plain decoding the range contains 1.00x; far from it it does not; few texts have no range at all."""
    speeds = {"none": 1.0, "ngram k=8": 1.5, "eagle k=5": 1.1}
    one = {"prose": 1.0, "code": 1.0}

    def notes(**changes: int) -> list[str]:
        made = write(tmp_path / "a.jsonl", make_records(speeds, one, noise=0.2, **changes))
        return [note for note in speed_sheet(summarise(read_records(made)), "t").notes if "INCONCLUSIVE" in note]

    assert [note.split(": the")[0] for note in notes(rounds=9)] == ["INCONCLUSIVE: eagle k=5"]
    assert notes(rounds=2)[0].startswith("INCONCLUSIVE: 6 prompts and 2 rounds are too few")
    made = write(tmp_path / "b.jsonl", make_records(speeds, {"prose": 1.0}, prompts=1))
    assert "1 prompt and 3 rounds" in speed_sheet(summarise(read_records(made)), "t").notes[0]
    plain = write(tmp_path / "c.jsonl", make_records({"none": 1.0}, {"prose": 1.0}, prompts=1))
    assert speed_sheet(summarise(read_records(plain)), "t").notes == ()


def test_tables_as_text(record_file: Path):
    records = read_records(record_file)
    cells = summarise(records)
    markdown, csv = to_markdown(speed_sheet(cells, "speed")), to_csv(speed_sheet(cells, "speed"))
    assert "| ngram k=8 |" in markdown and csv.startswith("method,tokens per pass,speed-up,95 %,on copy")
    times = time_sheet(cells, bars=False)
    assert "whole process" in times.notes[0] and len(times.rows) == len(SPEEDS)
    assert all(len(row) == len(times.columns) for row in times.rows)
    many = summarise(read_records(write(record_file, make_records(suites={f"s{i}": 1.0 for i in range(9)}))))
    assert "none, s3" in [row[0] for row in speed_sheet(many, "t").rows]


def test_words(record_file: Path):
    records = read_records(record_file)
    assert what_measured(records) == "outdraft bench: zoo:target, 15.7M parameters, bfloat16"
    assert "greedy; 12 prompts" in how_measured(records, summarise(records))
    assert "all 60 texts identical" in how_measured(records, summarise(records))
    assert "2 cores, 1 thread; torch" in where_measured(records) and "2026-11-21" in where_measured(records)
    drawn = {"max_tokens": 64, "temperature": 0.8, "seed": None, "top_p": 0.9, "top_k": 0, "repetition_penalty": 1.1}
    told = how_measured(sampled := read_records(write(record_file, make_records(sampling=drawn))), summarise(sampled))
    assert "temperature 0.8, top_p 0.9, repetition_penalty 1.1, no seed; 12 prompts" in told
    drawn |= {"temperature": 0.0, "min_tokens": 8, "stop": []}
    told = how_measured(sampled := read_records(write(record_file, make_records(sampling=drawn))), summarise(sampled))
    assert "greedy, min_tokens 8, repetition_penalty 1.1; 12 prompts" in told
    busy = read_records(write(record_file, make_records(load=7.5)))
    assert "busy (load up to 7.5)" in where_measured(busy)


def test_files_that_are_no_records(tmp_path: Path):
    for text, says in (
        ("", "no finished row"),
        ("{}\n{}\n", "line 1 is no record"),
        ('{"kind": "row"}\n1\n', "line 1"),
    ):
        (tmp_path / "a.jsonl").write_text(text)
        with pytest.raises(ConfigError, match=says):
            read_records(tmp_path / "a.jsonl")
    cut = write(tmp_path / "b.jsonl", make_records())
    cut.write_text(cut.read_text() + '{"kind": "ro')
    assert len(read_records(cut).rows) == 72


def test_setups_are_not_mixed(tmp_path: Path):
    old, new = make_records(seed=1), make_records(seed=2)
    for record in new:
        if record["kind"] == "row":
            record |= {"key": "new " + record["key"], "sampling": {**record["sampling"], "max_tokens": 32}}
    path = write(tmp_path / "a.jsonl", [*old, *new, *new])
    last = read_records(path)
    assert len(last.rows) == 72 == last.num_others and last.rows[0].sampling["max_tokens"] == 32
    first = read_records(path, old[3]["key"])
    assert len(first.rows) == 72 and first.num_others == 144 and first.rows[0].sampling["max_tokens"] == 64


def test_theory_agrees_with_the_paper():
    """Their closed form (1 - a^(k+1)) / ((1 - a)(c k + 1)), and the optimum that they tabulate by search."""
    a, c = 0.8, 0.1
    for k in range(8):
        assert expected_tokens(a, k) == pytest.approx((1 - a ** (k + 1)) / (1 - a))
    gain = expected_speedup(a, 6, draft_cost=c, pass_cost=lambda rows: 1.0)
    assert gain == pytest.approx(2.47, abs=0.005) and best_length(a, draft_cost=c, pass_cost=lambda rows: 1.0) == 6
    assert best_length(0.1, draft_cost=0.5, pass_cost=lambda rows: 1.0) == 0
    assert expected_tokens(1.0, 4) == 5


def test_the_cost_of_a_pass_is_given_beside_both_limits(record_file: Path):
    curve = read_records(record_file).curve
    assert curve is not None
    sheet = curve_sheet(replace(curve, rows=[1, 64], seconds=[0.004, 0.01], flops=10**8, peak_flops=1e12))
    assert sheet.rows == [["1", "4.00", "1.00", "0.03"], ["64", "10.00", "2.50", "0.64"]]  # 64 x 1e8 / 0.01 of 1e12
    assert "of the memory limit" in sheet.notes[0] and "1000 billion" in sheet.notes[1]


def test_cost_between_measured_points(record_file: Path):
    curve = read_records(record_file).curve
    assert curve is not None
    assert curve.pass_cost(1) == 1 and curve.pass_cost(1000) == curve.seconds[-1] / curve.seconds[0]
    assert curve.pass_cost(4) < curve.pass_cost(5) < curve.pass_cost(6)


def test_picture(record_file: Path):
    """A panel for each suite and all of them, a dot for each method; the caption says date and machine."""
    records = read_records(record_file)
    cells = summarise(records)
    root = ElementTree.fromstring(picture(records, cells))
    said = [text.text for text in root.findall(".//{*}text")]
    assert "Made-up CPU" in said[2] and "2026-11-21" in said[2] and {"all prompts", *BY_SUITE, "ngram k=8"} <= {*said}
    assert len(root.findall(".//{*}circle")) == (len(SPEEDS) - 1) * (1 + len(BY_SUITE))
    noisy = [replace(cell, speedup=replace(cell.speedup, high=300.0)) for cell in cells]
    ends = [float(line.get("x2")) for line in ElementTree.fromstring(picture(records, noisy)).findall(".//{*}line")]
    assert max(ends) < float(root.get("width"))  # a range that noise stretched is cut
