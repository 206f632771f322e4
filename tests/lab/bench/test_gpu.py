"""The GPU benchmark, tried out on a CPU: every section has figures that fit each other; bad requests are one line."""

import json
from itertools import count

import pytest
import torch

from lab.gpu import peer
from lab.gpu.__main__ import main
from lab.gpu.packed import time_products
from lab.gpu.pair import make_pair
from lab.gpu.rounds import Way, measure
from lab.gpu.rows import examine_rows


@pytest.fixture(scope="module")
def pair():
    return make_pair("tiny", device="cpu", dtype=torch.float32)


@pytest.mark.parametrize(("rate", "tokens"), [(1.0, 4.0), (0.0, 1.0)])
def test_a_synthetic_rule_accepts_the_share_that_it_is_asked_for(pair, rate, tokens):
    found = measure(pair, Way(graphs=False, depth=3, rate=rate), tokens=21, repeats=1)
    assert found.tokens_per_round == pytest.approx(tokens, abs=0.5) and found.tokens_per_second > 0


def test_the_real_rule_accepts_a_target_of_the_same_distribution(pair):
    assert measure(pair, Way(graphs=False, depth=3), tokens=21, repeats=1).tokens_per_round > 3


def test_exact_rows_are_the_same_rows(pair):
    facts = examine_rows(pair, exact=True, counts=(2, 5))
    wanted = [(shape, rows, 0, 0) for rows in (2, 5) for shape in ("chain", "comb")]
    assert [(fact.shape, fact.rows, fact.other_bits, fact.other_argmax) for fact in facts] == wanted
    assert all(fact.smallest_margin >= 0 for fact in examine_rows(pair, exact=False, counts=(4,)))


def test_the_peers_prompt_is_not_counted_as_ours_is_not(pair, monkeypatch):
    """A clock that goes on by a second when it is looked at: behind the first tokens, and at the end."""
    pytest.importorskip("transformers")
    clock = count().__next__
    monkeypatch.setattr(peer, "perf_counter", clock)
    monkeypatch.setattr("lab.bench.peers.workers.with_transformers.perf_counter", clock)
    told = peer.time_transformers(pair, depth=2, tokens=8, repeats=1)
    assert told["plain"] == 7 and 0 < told["assisted"] <= 7


def test_no_gpu_is_one_line(capsys, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    assert main(["--out", str(tmp_path / "x.jsonl")]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_the_time_limit_is_kept_and_written(tmp_path):
    out = tmp_path / "gpu.jsonl"
    words = ["--device", "cpu", "--size", "tiny", "--dtype", "float32", "--minutes", "0", "--out", str(out)]
    assert main(words) == 1
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines[0]["section"] == "machine" and len(lines) > 20
    assert all("skipped" in line for line in lines[1:])


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_products_have_figures(bits):
    """On a CPU, with the CPU's operator."""
    told = time_products(64, 32, bits, 0, torch.device("cpu"))
    assert told["bytes"]["packed"] < told["bytes"]["bfloat16"] == 2 * 64 * 32
    assert max(told["off"].values()) < 0.03 and told["layout"] < 0.03 and told["rows_with_other_bits"][9] == 0
    assert set(told["us"]) == {"packed", "bfloat16"} | ({"int8pack"} if bits == 8 else set())
    assert all(one > 0 for times in told["us"].values() for one in times.values())
