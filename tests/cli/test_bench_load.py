"""`outdraft bench --load` on a tiny random model: rows, identity, resuming, reports, a server, and what it refuses."""

import json
from pathlib import Path

import pytest
from bench.load.made_up import http_server

from outdraft.bench import subject
from outdraft.bench.load.row import MeasuredLoad
from outdraft.engine.llm import LLM

WORDS = ("--rounds", 2, "--max-tokens", 8, "--no-plots")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    file = tmp_path / "few.txt"
    file.write_text("abcabcabcabcabcabc\nxyxyxyxyxyxyxyxy\nsome other text\n")
    return file


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_measure_resume_report(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    out = tmp_path / "made" / "bench.jsonl"
    words = ("bench", "--model", tiny, "--suite", suite, *WORDS, "--out", out)
    ran = outdraft(*words, "--load", "3,1", "--method", "ngram:k=3")
    assert ran.code == 0 and "\x1b" not in ran.out, ran.err
    rows = rows_of(out)
    assert [(row["clients"], row["method"]) for row in rows] == [
        (1, "none"),
        (1, "ngram k=3"),
        (3, "none"),
        (3, "ngram k=3"),
    ]
    for row in rows:
        assert row["kind"] == "load" and row["identical"] is True and set(MeasuredLoad.__dataclass_fields__) <= set(row)
        assert len(row["seconds"]) == len(row["plain_seconds"]) == 2 and min(row["seconds"]) > 0
        assert row["num_requests"] == 8 and [len(one) for one in row["first_token_seconds"]] == [8, 8]
        assert row["tokens"] == row["plain_tokens"] == rows[0]["tokens"] and 32 <= row["tokens"][0] <= 64
        assert row["config"]["drafter"]["name"] == row["method"].split()[0]
        assert row["sampling"]["ignore_eos"] is True, "with servers and without, so that rows stand in one table"
    assert rows[0]["tau"] == 1.0 < rows[1]["tau"] and rows[1]["plain_seconds"] == rows[0]["seconds"]
    table = out.with_name("bench-load.md").read_text()
    assert (
        "1, 3 clients at once" in table
        and "all our texts identical" in table
        and "ignore_eos" not in table
        and "max_num_seqs" not in table
        and "| ngram k=3 |" in table
    )
    assert out.with_name("bench-load.csv").read_text().startswith("clients,method,")

    more = outdraft(*words, "--load", "1,3", "--method", "ngram:k=3", "--method", "ngram:k=5", "--json")
    made = json.loads(more.out)
    assert more.code == 0 and "4 rows were there already, 2 are new" in more.err, more.err
    assert len(rows_of(out)) == 6 and {cell["method"] for cell in made["cells"]} == {"none", "ngram k=3", "ngram k=5"}
    assert made["failed"] == [] and made["absent"] == {}

    other = outdraft(*words, "--load", "1", "--requests", 4, "--method", "ngram:k=3")
    assert other.code == 0 and [row["num_requests"] for row in rows_of(out)[6:]] == [4, 4]
    assert "3 lines of the file are of another" in other.out.replace("\n", " ")

    looked = outdraft("bench", "--report", out, "--no-plots", "--json")
    cells = json.loads(looked.out)["cells"]
    assert looked.code == 0 and {(cell["clients"], cell["num_requests"]) for cell in cells} == {(1, 4), (3, 8)}
    assert len(rows_of(out)) == 8


def test_a_file_with_both_shows_both(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    out = tmp_path / "bench.jsonl"
    words = ("bench", "--model", tiny, "--suite", suite, *WORDS, "--out", out, "--method", "ngram:k=3")
    assert outdraft(*words, "--no-curve").code == 0
    assert outdraft(*words, "--load", "2").code == 0
    ran = outdraft("bench", "--report", out, "--no-plots")
    assert ran.code == 0 and "clients at once" in ran.out and "Where the time went" in ran.out
    assert out.with_suffix(".md").exists() and out.with_name("bench-load.md").exists()


def test_another_text_is_a_failed_row(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    """A planted rule that keeps whatever is drafted, and says that it is lossless."""
    out = tmp_path / "a.jsonl"
    ran = outdraft(
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        *WORDS,
        "--load",
        "2",
        "--out",
        out,
        "--method",
        "ngram:k=4,verifier=helpers.planted:LIAR",
        "--json",
    )
    made = json.loads(ran.out)
    assert ran.code == 1 and len(made["failed"]) == 1, ran.err
    assert "FAILED" in ran.err and "plain decoding's is" in ran.err.replace("\n", " ")
    cell = next(cell for cell in made["cells"] if cell["method"] != "none")
    assert cell["speedup"] is None and cell["identical"] is False
    assert outdraft("bench", "--report", out, "--no-plots").code == 1


def test_seeded_requests_are_compared_and_unseeded_are_not(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    words = (
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        *WORDS,
        "--load",
        "2",
        "--method",
        "ngram:k=3",
        "--temperature",
        1.0,
    )
    assert outdraft(*words, "--seed", 3, "--out", tmp_path / "a.jsonl").code == 0
    assert [row["identical"] for row in rows_of(tmp_path / "a.jsonl")] == [True, True]
    ran = outdraft(*words, "--out", tmp_path / "b.jsonl")
    assert ran.code == 0 and [row["identical"] for row in rows_of(tmp_path / "b.jsonl")] == [None, None]
    assert "not promised" in tmp_path.joinpath("b-load.md").read_text()


def test_a_server_stands_in_the_same_rounds(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    out = tmp_path / "a.jsonl"
    with http_server("ids") as (url, asked):
        ran = outdraft(
            "bench",
            "--model",
            tiny,
            "--suite",
            suite,
            *WORDS,
            "--load",
            "1,3",
            "--peer",
            f"made={url}",
            "--peer-field",
            "top_k=1",
            "--out",
            out,
        )
    assert ran.code == 0, ran.err
    rows = rows_of(out)
    assert [(row["clients"], row["method"]) for row in rows] == [(1, "none"), (1, "made"), (3, "none"), (3, "made")], (
        "with --peer and no --method, plain decoding alone is ours"
    )
    assert rows[1]["num_agreeing"] == 0 and rows[1]["tau"] is None and rows[1]["identical"] is None
    assert rows[1]["tokens"] == rows[0]["tokens"] and rows[1]["plain_seconds"] == rows[0]["seconds"]
    assert rows[1]["config"]["peer"]["model"] == "made-up"
    timed = [body for _, body in asked]
    assert len(timed) == (1 + 2 * 8) + (3 + 2 * 8), "a warm-up of as many as there are clients, and two rounds"
    assert all(body["top_k"] == 1 for body in timed)
    assert "0 of 8" in tmp_path.joinpath("a-load.md").read_text()


def test_more_clients_than_seats_are_decoded_together(outdraft, tiny: Path, suite: Path, tmp_path: Path, monkeypatch):
    real, settings = subject.load_subject, []

    def noting(*given: object, **named: object) -> object:
        settings.append(named)
        return real(*given, **named)

    monkeypatch.setattr(subject, "load_subject", noting)
    out = tmp_path / "a.jsonl"
    ran = outdraft(
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        "--rounds",
        1,
        "--max-tokens",
        2,
        "--no-plots",
        "--load",
        "70",
        "--requests",
        70,
        "--method",
        "none",
        "--out",
        out,
        "--suite",
        "log",
    )
    assert ran.code == 0 and rows_of(out)[0]["num_requests"] == 70, ran.err
    assert settings[0]["max_num_seqs"] == 70


def test_a_bounded_engine_writes_the_same_and_is_a_setup_of_its_own(outdraft, tiny: Path, suite: Path, tmp_path: Path):
    out = tmp_path / "a.jsonl"
    words = ("bench", "--model", tiny, "--suite", suite, *WORDS, "--load", "4", "--method", "ngram:k=3", "--out", out)
    assert outdraft(*words).code == 0
    ran = outdraft(*words, "--max-num-seqs", 2, "--max-num-batched-tokens", 16, "--kv-cache-memory", "64KiB")
    assert ran.code == 0 and "2 lines of the file are of another" in ran.out.replace("\n", " "), ran.err
    rows = rows_of(out)
    assert all(row["identical"] for row in rows) and rows[0]["engine"] == {"max_num_seqs": 64}
    said = {"max_num_seqs": 2, "max_num_batched_tokens": 16, "kv_cache_memory": "64KiB"}
    assert rows[2]["engine"] == rows[3]["engine"] == said
    assert "max_num_seqs=2, max_num_batched_tokens=16" in out.with_name("a-load.md").read_text()


def test_nothing_is_remembered_from_round_to_round(outdraft, tiny: Path, suite: Path, tmp_path: Path, monkeypatch):
    forgotten = []
    monkeypatch.setattr(LLM, "forget", lambda llm: forgotten.append(llm.config["drafter"]["name"]))
    ran = outdraft(
        "bench",
        "--model",
        tiny,
        "--suite",
        suite,
        *WORDS,
        "--load",
        "2",
        "--method",
        "ngram:k=3",
        "--out",
        tmp_path / "a.jsonl",
    )
    assert ran.code == 0 and sorted(forgotten) == 3 * ["ngram"] + 3 * ["none"], "before a warm-up and two rounds each"


def test_ctrl_c_keeps_what_is_done(outdraft, tiny: Path, suite: Path, tmp_path: Path, monkeypatch):
    from outdraft.bench.load import run

    real, levels = run.serve, []

    def second_level_is_interrupted(server: object, jobs: object, clients: int) -> object:
        levels.append(clients)
        if clients == 2:
            raise KeyboardInterrupt
        return real(server, jobs, clients)

    out = tmp_path / "a.jsonl"
    words = ("bench", "--model", tiny, "--suite", suite, *WORDS, "--load", "1,2", "--method", "ngram:k=3", "--out", out)
    monkeypatch.setattr(run, "serve", second_level_is_interrupted)
    ran = outdraft(*words)
    assert ran.code == 130 and f"--out {out} goes on" in ran.out.replace("\n", " ")
    assert [row["clients"] for row in rows_of(out)] == [1, 1]
    monkeypatch.setattr(run, "serve", real)
    assert outdraft(*words).code == 0 and [row["clients"] for row in rows_of(out)] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    "words, says",
    [
        (("--load", "0,4"), "'0' is no number of clients"),
        (("--load", "four"), "'four' is no number of clients"),
        (("--load", "4", "--requests", 3), "4 clients need at least one each"),
        (("--load", "4", "--requests", -1), "requests=-1"),
        (("--load", "4", "--rounds", 0), "rounds=0"),
        (("--load", "4", "--peer", "llama_cpp"), "write NAME=URL"),
        (("--load", "4", "--peer", "a=http://127.0.0.1:9", "--temperature", 1.0), "leave temperature=1.0 out"),
        (("--load", "4", "--peer", "a=http://127.0.0.1:9"), "peer a at http://127.0.0.1:9: no connection"),
        (("--load", "4", "--method", "ngram:threads=1"), "leave it out under --load"),
        (("--load", "4", "--method", "ngram", "--method", "ngram"), "given twice"),
        (("--load", "4", "--max-tokens", 5000), "no prompt fits"),
        (("--peer", "a=http://127.0.0.1:9"), "--load"),
        (("--requests", 4), "--load"),
        (("--peer-field", "top_k=1"), "--load"),
        (("--max-num-seqs", 8), "--max-num-seqs is for many requests at once"),
        (("--load", "4", "--by", "category"), "--by is for texts that are measured one by one: leave it out"),
        (("--load", "4", "--no-curve"), "--no-curve is for texts that are measured one by one"),
        (("--load", "4", "--past", 64), "--past is for texts that are measured one by one"),
        (("--load", "4", "--max-num-seqs", 0), "max_num_seqs=0"),
        (("--load", "4", "--kv-cache-memory", "lots"), "kv_cache_memory"),
    ],
)
def test_what_is_refused_in_one_line(outdraft, tiny: Path, suite: Path, words: tuple, says: str):
    ran = outdraft("bench", "--model", tiny, "--suite", suite, *words)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1, ran.err
