"""On a real GPU: recorded graphs write what launched kernels write, and a round waits for the device once."""

import warnings

import pytest
import torch

from lab.gpu.pair import make_pair
from lab.gpu.rounds import Way, make_engine, started
from lab.gpu.rows import examine_rows
from outdraft import LLM, SamplingParams
from outdraft.engine.graphed import GraphedRunner

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.fixture(scope="module")
def pair():
    return make_pair("tiny", device="cuda", dtype=torch.float32)


def texts(pair, way: Way) -> list[list[int]]:
    engine = make_engine(pair, way)
    with started(engine, way, 40) as seqs:
        while engine.has_work:
            engine.step()
    runner = engine.parts.target
    assert isinstance(runner, GraphedRunner) and runner.static.recordings.reason is None
    return [seq.output for seq in seqs]


@pytest.mark.parametrize("depth", [0, 4])
@pytest.mark.parametrize("batch", [1, 3])
def test_recorded_equals_launched(pair, depth, batch):
    on = texts(pair, Way(graphs=True, depth=depth, batch=batch))
    assert on == texts(pair, Way(graphs=False, depth=depth, batch=batch))


def test_a_round_waits_once(pair):
    way = Way(graphs=True, depth=4)
    engine = make_engine(pair, way)
    with started(engine, way, 60):
        waits = [count_waits(engine) for _ in range(8)]
    assert sorted(waits)[: len(waits) // 2 + 1] == [1] * (len(waits) // 2 + 1)  # a round that records waits more often


def count_waits(engine) -> int:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            engine.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    messages = [str(one.message).splitlines()[0] for one in seen if "synchroniz" in str(one.message)]
    return len(messages)


def test_passes_are_recorded_anew_when_the_pool_has_grown(pair):
    way = Way(graphs=True, depth=0)
    engine = make_engine(pair, way)
    with started(engine, way, 300) as seqs:
        places = set()
        while engine.has_work:
            engine.step()
            places.add(engine.parts.target.static._place)
    assert len(places) > 1 and len(seqs[0].output) == 300
    assert engine.parts.target.static.recordings.reason is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_rows_of_a_chain_have_the_bits_of_one_row_at_a_time(dtype):
    facts = examine_rows(make_pair("1b", device="cuda", dtype=dtype), exact=False)
    assert [fact.other_bits for fact in facts if fact.shape == "chain"] == [0] * 7


@pytest.mark.parametrize(("dtype", "guard"), [("float32", None), ("bfloat16", 0.25)])
def test_behind_the_guard_the_default_writes_plain_decodings_text(dtype, guard):
    ways = [SamplingParams(max_tokens=60), SamplingParams(max_tokens=60, temperature=0.8, seed=3)]
    plain = LLM("zoo:target", device="cuda", dtype=dtype, drafter="none")
    guarded = LLM("zoo:target", device="auto", dtype=dtype, guard=guard)
    assert guarded.config["policy"]["name"] == "auto" and guarded.config["graphs"] and guarded.config["guard"] > 0
    for params in ways:
        for prompt in ("It was late when", "def f(x):"):
            assert guarded.generate(prompt, params).token_ids == plain.generate(prompt, params).token_ids
