"""Tokens a second of whole texts: plain and speculative, recorded and not, at several acceptance rates and batches.

Data in: a pair of models and how to run them; data out: one `Speed` for each way, and what a round is made of.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

import torch

from lab.gpu.pair import Pair, SyntheticRule
from outdraft.control.fixed import FixedOptions, FixedPolicy
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.target import Recorder
from outdraft.decode.parts import Parts
from outdraft.drafters.draft_model import DraftModelDrafter, DraftModelOptions
from outdraft.drafters.draft_model.static import StaticDraftModel
from outdraft.drafters.none import NoDrafter
from outdraft.engine.graphed import ROW_TILE, GraphedRunner
from outdraft.engine.loop import Engine
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.nn.capture import call_each_time, cuda_recorder
from outdraft.options.params import SamplingParams
from outdraft.verify.auto import Auto

PROMPT = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """`rate`: share of draft tokens that a synthetic rule accepts; None: the real rule. depth 0: plain decoding."""

    graphs: bool
    depth: int
    rate: float | None = None
    batch: int = 1
    tile: int | None = ROW_TILE  # rows of one matrix product of the target; None: as many as the pass has


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast one way of decoding wrote its text."""

    way: Way
    tokens_per_second: float  # of all sequences together
    round_ms: float
    tokens_per_round: float  # of one sequence
    recordings: int
    reason: str | None  # why passes were not recorded


def make_engine(pair: Pair, way: Way) -> Engine:
    """Target, drafter, rule and policy of this way."""
    recorder: Recorder = (
        cuda_recorder(pair.target.device) if way.graphs and pair.target.device.type == "cuda" else call_each_time
    )
    runner = GraphedRunner(pair.target, record=recorder, row_tile=way.tile)
    drafter = NoDrafter()
    if way.depth:
        drafter = DraftModelDrafter(DraftModelOptions(), StaticDraftModel(pair.draft, recorder))  # type: ignore[assignment]
    return Engine(
        Parts(
            target=runner,
            drafter=drafter,
            verifier=Auto() if way.rate is None else SyntheticRule(way.rate),
            policy=FixedPolicy(FixedOptions(num_speculative_tokens=way.depth)),
        ),
        scheduling=SchedulerSettings(max_num_seqs=way.batch),
    )


@contextmanager
def started(engine: Engine, way: Way, tokens: int) -> Iterator[list[Sequence]]:
    """Requests whose prompts are read; cancelled in the end."""
    vocab = engine.parts.target.vocab_size
    prompts = [tuple(1 + (i * 7 + b * 13) % (vocab - 1) for i in range(PROMPT)) for b in range(way.batch)]
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    seqs = [engine.add(Request(prompt_token_ids=prompt, params=params)) for prompt in prompts]
    try:
        while not all(seq.num_output for seq in seqs):
            engine.step()
        yield seqs
    finally:
        for seq in seqs:
            if seq.finish_reason is None:
                engine.cancel(seq)


def measure(pair: Pair, way: Way, *, tokens: int, repeats: int) -> Speed:
    """The best of `repeats` texts of `tokens` tokens, after one that records and warms up."""
    engine = make_engine(pair, way)
    best: tuple[float, int, int] | None = None  # seconds, tokens, rounds
    for repeat in range(repeats + 1):
        with started(engine, way, tokens) as seqs:
            before, rounds = sum(seq.num_output for seq in seqs), 0
            wait(pair.target.device)
            began = perf_counter()
            while engine.has_work:
                engine.step()
                rounds += 1
            wait(pair.target.device)
            seconds = perf_counter() - began
        written = sum(seq.num_output for seq in seqs) - before
        if repeat and (best is None or seconds < best[0]):
            best = (seconds, written, rounds)
    assert best is not None
    seconds, written, rounds = best
    runner = engine.parts.target
    assert isinstance(runner, GraphedRunner)
    return Speed(
        way=way,
        tokens_per_second=written / seconds,
        round_ms=1e3 * seconds / rounds,
        tokens_per_round=written / rounds / way.batch,
        recordings=len(runner.static.recordings),
        reason=runner.static.recordings.reason,
    )


def wait(device: torch.device) -> None:
    """Until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
