"""`python -m lab.bench.peers`: another program in the same rounds and tables; who is missing; what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.peers.made_up import install
from cli.conftest import Ran

from lab.bench.peers import entrant
from lab.bench.peers.__main__ import main

WORDS = ("--rounds", 2, "--max-tokens", 8, "--no-curve", "--no-plots")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    file = tmp_path / "few.txt"
    file.write_text("abcabcabc\nxyxyxyxy\n")
    return file


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = install(tmp_path / "workers")
    monkeypatch.setattr(entrant, "WORKERS", folder)
    return folder


@pytest.fixture
def peers(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run `python -m lab.bench.peers WORDS` in this process."""

    def call(*words: object) -> Ran:
        code = main([str(word) for word in words])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return call


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_peer_stands_beside_our_methods(peers, outdraft, tiny: Path, suite: Path, workers: Path, tmp_path: Path):
    out = tmp_path / "bench.jsonl"
    ran = peers(
        "--model",
        tiny,
        "--suite",
        suite,
        *WORDS,
        "--method",
        "ngram:k=3",
        "--out",
        out,
        "--peer",
        "transformers",
        "--peer",
        f"transformers:mode=assisted,k=4,draft={tiny}",
    )
    assert ran.code == 0, ran.err
    assert (workers / "closed").exists(), "peers are ended with the run"
    rows = rows_of(out)
    labels = ["none", "ngram k=3", "transformers plain", "transformers assisted k=4"]
    assert [row["method"] for row in rows] == 2 * labels
    none, _, plain, assisted = rows[:4]
    assert plain["identical"] is None and plain["agreement"] < 8 and none["agreement"] is None
    assert plain["seconds"] == [0.5, 0.5] and plain["first_token_seconds"] == [0.1, 0.1]
    assert plain["plain_seconds"] == none["seconds"], "the same rounds"
    assert plain["num_steps"] == 0 and (assisted["num_steps"], assisted["tau"]) == (5, 1.6)
    assert plain["config"]["peer"]["versions"] == {"fake": "1.0"} and plain["config"]["peer"]["k"] is None
    assert assisted["config"]["peer"]["draft"] == str(tiny)
    assert all(row["sampling"]["ignore_eos"] for row in rows)
    asked = [json.loads(line) for line in (workers / "asked").read_text().splitlines()]
    texts = [one for one in asked if one[1] == 8]
    assert len(texts) == 2 * 2 * 3, "two peers, two prompts, a first text and two rounds"
    lengths = {none["num_prompt_tokens"], rows[4]["num_prompt_tokens"]}
    assert len({tuple(ids) for ids, _ in texts}) == 2 and {len(ids) for ids, _ in texts} == lengths
    table = out.with_suffix(".md").read_text().splitlines()  # on a terminal its cells may be broken
    line = next(line for line in table if line.startswith("| transformers plain"))
    assert "?" in line and "0 of 2, else from" in line
    again = outdraft("bench", "--report", out, "--no-plots", "--json")
    cell = next(one for one in json.loads(again.out)["cells"] if one["method"] == "transformers plain")
    assert cell["num_agreeing"] == 0 and cell["speedup"]["value"] > 0
    assert cell["later_token_seconds"] == pytest.approx((0.5 - 0.1) / (8 - 2))
    assert again.code == 0, "another text of a peer is no failure"


def test_who_is_not_there_is_left_out_with_a_cure(peers, tiny: Path, suite: Path, tmp_path: Path):
    out = tmp_path / "bench.jsonl"
    ran = peers(
        "--model",
        tiny,
        "--suite",
        suite,
        *WORDS,
        "--out",
        out,
        "--json",
        "--peer",
        "llama_cpp:bits=8,server=no-such-server",
    )
    assert ran.code == 0
    left_out = [line for line in ran.err.splitlines() if line.startswith("left out: llama_cpp plain 8-bit")]
    assert len(left_out) == 1 and "no-such-server" in left_out[0] and "build llama-server" in left_out[0]
    assert list(json.loads(ran.out)["absent"]) == ["llama_cpp plain 8-bit"]
    assert {row["method"] for row in rows_of(out)} == {"none"}, "with --peer and no --method, plain decoding is ours"


@pytest.mark.parametrize(
    "words, says",
    [
        (("--peer", "transformer"), "did you mean 'transformers'"),
        (("--peer", "transformers", "--temperature", 1.0), "leave temperature=1.0 out"),
        (("--peer", "transformers", "--stop", "x"), "leave stop="),
        (("--peer", "transformers", "--peer", "transformers"), "given twice"),
        (("--peer", "transformers:mode=lookup"), "no look-up today"),
    ],
)
def test_what_is_refused_in_one_line(peers, tiny: Path, suite: Path, workers: Path, words: tuple, says: str):
    ran = peers("--model", tiny, "--suite", suite, *WORDS, *words)
    assert ran.code == 2 and says in ran.err and ran.err.count("\n") == 1, ran.err


def test_conversations_run_to_the_length(peers, tiny: Path, workers: Path, tmp_path: Path):
    file, out = tmp_path / "chat.jsonl", tmp_path / "a.jsonl"
    file.write_text(json.dumps({"question_id": 7, "turns": ["hi", "again"]}) + "\n")
    ran = peers("--model", tiny, "--suite", file, *WORDS, "--out", out, "--peer", "transformers")
    assert ran.code == 0, ran.err
    assert [len(row["sampling"]["stop"]) for row in rows_of(out)] == [0] * 4
    assert {tuple(row["tokens"]) for row in rows_of(out)} == {(8, 8)}
