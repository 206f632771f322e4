"""`outdraft bench` on a tiny random model: rows, identity, resuming, reports, and what it refuses."""

import json
from dataclasses import fields
from pathlib import Path
from threading import current_thread
from types import SimpleNamespace

import pytest

from outdraft.bench.curve import measure_curve
from outdraft.bench.row import MeasuredRow
from outdraft.bench.subject import runner_of
from outdraft.cli.bench_report import measure
from outdraft.cli.commands import bench
from outdraft.cli.console import make_console
from outdraft.engine.llm import LLM
from outdraft.engine.loop import Engine


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    file = tmp_path / "few.txt"
    file.write_text("abcabcabc\nxyxyxyxy\n")
    return file


def rows_of(path: Path) -> list[dict]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == "row"]


def test_measure_resume_report(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    out = tmp_path / "made" / "bench.jsonl"
    words = (
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        "--rounds",
        2,
        "--max-tokens",
        8,
        "--out",
        out,
        "--no-curve",
        "--no-plots",
    )
    ran = outdraft(*words, "--method", "ngram:k=3")
    assert ran.code == 0 and "\x1b" not in ran.out, ran.err
    assert "ngram k=3" in ran.out and "identical" in ran.out and "Where the time went" in ran.out
    rows = rows_of(out)
    assert [(row["method"], row["prompt"]) for row in rows] == [
        ("none", "1"),
        ("ngram k=3", "1"),
        ("none", "2"),
        ("ngram k=3", "2"),
    ]
    for row in rows:
        assert row["identical"] is True and len(row["seconds"]) == len(row["plain_seconds"]) == 2
        assert row["config"]["drafter"]["name"] == row["method"].split()[0] and row["machine"]["cores"] >= 1
        assert min(row["seconds"]) > 0 and row["num_tokens"] == 8 and set(MeasuredRow.__dataclass_fields__) <= set(row)
        assert sum(row["split"].values()) == pytest.approx(sum(row["seconds"]) / 2)
    assert out.with_suffix(".md").exists() and out.with_suffix(".csv").read_text().startswith("method,")

    more = outdraft(*words, "--method", "ngram:k=3", "--method", "ngram:k=5", "--json")
    made = json.loads(more.out)
    assert more.code == 0 and "4 rows were there already, 2 are new" in more.err
    assert len(rows_of(out)) == 6 and {cell["method"] for cell in made["cells"]} == {"none", "ngram k=3", "ngram k=5"}
    assert made["failed"] == []
    told = next(one.metadata["help"] for one in fields(bench.Options) if one.name == "json")
    assert set(made) == {"records", "written", "cells", "failed", "absent", "too_long", "advice"} and all(
        n in told for n in made
    )

    longer = outdraft(*words, "--method", "ngram:k=3", "--max-tokens", 9)
    assert longer.code == 0 and len(rows_of(out)) == 10, "another length is another row"

    assert "6 rows of the file are of another" in longer.out

    looked = outdraft("bench", "--report", out, "--no-plots")
    assert looked.code == 0 and looked.out.splitlines()[-1] == "no advice: take at least 3 prompts and 3 rounds"


def test_seeded_sampling_is_compared_and_unseeded_is_not(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    words = (
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        "--prompts",
        1,
        "--rounds",
        1,
        "--max-tokens",
        8,
        "--method",
        "ngram:k=3",
        "--no-curve",
        "--no-plots",
        "--temperature",
        1.0,
    )
    assert outdraft(*words, "--seed", 3, "--out", tmp_path / "a.jsonl").code == 0
    assert all(row["identical"] for row in rows_of(tmp_path / "a.jsonl"))
    ran = outdraft(*words, "--out", tmp_path / "b.jsonl")
    assert ran.code == 0 and "not promised" in ran.out
    assert [row["identical"] for row in rows_of(tmp_path / "b.jsonl")] == [None, None]


def test_another_text_is_a_failed_row(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    """A planted rule that keeps whatever is drafted, and says that it is lossless."""
    ran = outdraft(
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        "--rounds",
        1,
        "--max-tokens",
        12,
        "--no-curve",
        "--no-plots",
        "--out",
        tmp_path / "a.jsonl",
        "--method",
        "ngram:k=4,verifier=helpers.planted:LIAR",
        "--json",
    )
    made = json.loads(ran.out)
    assert ran.code == 1 and made["failed"], ran.err
    assert "FAILED" in ran.err
    cell = next(cell for cell in made["cells"] if cell["method"] != "none" and cell["num_failed"])
    assert cell["speedup"] is None and "plain decoding" in cell["first_failure"]


def test_conversations_follow_plain_answers(outdraft, tiny: Path, tmp_path: Path):
    file, out = tmp_path / "chat.jsonl", tmp_path / "a.jsonl"
    file.write_text(json.dumps({"question_id": 7, "turns": ["hi", "again"]}) + "\n")
    words = (
        "bench",
        "--model",
        tiny,
        "--suite",
        file,
        "--rounds",
        1,
        "--max-tokens",
        6,
        "--no-curve",
        "--no-plots",
        "--method",
        "ngram:k=3",
        "--out",
        out,
    )
    assert outdraft(*words).code == 0
    rows = rows_of(out)
    assert [row["prompt"] for row in rows] == ["7/1", "7/1", "7/2", "7/2"]
    assert rows[2]["num_prompt_tokens"] > rows[0]["num_prompt_tokens"] + len("again")
    kept = out.read_text().splitlines()
    out.write_text("\n".join(kept[:2]) + "\n")
    assert outdraft(*words).code == 0
    assert [json.loads(line)["key"] for line in out.read_text().splitlines()] == [json.loads(k)["key"] for k in kept]


def test_the_path_of_a_record_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    path = tmp_path / "runs[old].jsonl"
    path.write_text('{"key": "1"}\n')
    measure(make_console(), path, {}, [], 1, "texts", lambda journal, tell: SimpleNamespace(run=lambda: None))
    assert "runs[old].jsonl" in capsys.readouterr().out.replace("\n", "")


def test_ctrl_c_keeps_what_is_done(outdraft, tiny: Path, suite: Path, tmp_path: Path, monkeypatch):
    from outdraft.bench import runner

    real, calls = runner.time_round, []

    def second_prompt_is_interrupted(*args: object, **options: object) -> None:
        calls.append(args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(*args, **options)

    out = tmp_path / "a.jsonl"
    words = (
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        "--rounds",
        1,
        "--max-tokens",
        6,
        "--no-curve",
        "--no-plots",
        "--method",
        "ngram:k=3",
        "--out",
        out,
    )
    monkeypatch.setattr(runner, "time_round", second_prompt_is_interrupted)
    ran = outdraft(*words)
    assert ran.code == 130 and f"--out {out} goes on" in ran.out.replace("\n", " ")
    assert [row["prompt"] for row in rows_of(out)] == ["1", "1"]
    assert outdraft(*words).code == 0 and [row["prompt"] for row in rows_of(out)] == ["1", "1", "2", "2"]


def test_a_short_context_leaves_out_the_widest_passes(tiny: Path):
    curve = measure_curve(LLM(tiny, drafter="none", max_model_len=200), budget=0.0)
    assert curve.past == 128 and curve.rows[-1] == 64 and len(curve.seconds) == len(curve.rows)


def test_the_curve_is_measured_on_the_engines_own_thread(tiny, monkeypatch):
    llm, threads = LLM(tiny, drafter="none", max_model_len=200), set()
    step = Engine.step
    monkeypatch.setattr(Engine, "step", lambda self: (threads.add(current_thread()), step(self))[1])
    measure_curve(llm, rows=(1,), budget=0.0)  # another thread would race with it for the request
    assert len(threads) == 1 and current_thread() not in threads


def test_a_cache_of_bytes_moves_fewer(tiny: Path):
    llms = [LLM(tiny, drafter="none", kv_cache_dtype=dtype) for dtype in ("auto", "int8")]
    whole, small = (measure_curve(llm, rows=(1,), budget=0.0).kv_bytes for llm in llms)
    runner = runner_of(llms[0])
    config = runner.decoder.config
    rows, width = 2 * config.num_layers * config.num_kv_heads, config.head_dim
    assert whole == rows * width * runner.dtype.itemsize and small == rows * (width + 4)


def test_curve_and_picture(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    out = tmp_path / "a.jsonl"
    ran = outdraft(
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        "--prompts",
        1,
        "--rounds",
        1,
        "--max-tokens",
        8,
        "--method",
        "ngram:k=3",
        "--out",
        out,
    )
    assert ran.code == 0, ran.err
    curve = json.loads(out.read_text().splitlines()[-1])
    assert curve["kind"] == "curve" and len(curve["rows"]) == len(curve["seconds"]) and curve["bandwidth"] > 0
    assert curve["past"] == 128 and curve["rows"][-1] == 256
    assert "ngram k=3</text>" in (tmp_path / "a.svg").read_text()


def test_when_no_prompt_fits_the_error_says_so(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    ran = outdraft(
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        "--max-tokens",
        5000,
        "--no-curve",
        "--out",
        tmp_path / "a.jsonl",
        "--method",
        "ngram",
    )
    assert ran.code == 2 and "no prompt fits" in ran.err and "lower --max-tokens" in ran.err


@pytest.mark.parametrize(
    "words, says",
    [
        (("--rounds", 0), "rounds=0"),
        (("--suite", "nowhere.jsonl"), "no such file"),
        (("--method", "ngarm"), "did you mean 'ngram'"),
        (("--method", "ngram:max_ngrm=2"), "did you mean 'max_ngram'"),
        (("--method", "ngram", "--method", "ngram"), "given twice"),
        (("--inflate", "big"), "WIDTHxDEPTH"),
        (("--peer", "llama=http://127.0.0.1:9"), "add --load"),
        (("--report", "no.jsonl"), "cannot be read"),
    ],
)
def test_what_is_refused_in_one_line(outdraft, tiny: Path, words: tuple, says: str):
    ran = outdraft("bench", "--model", tiny, *words)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1, ran.err
