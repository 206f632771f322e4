"""Many requests in little memory: whichever joins, leaves or has to give it back, every text is what it is alone.

A pool of a few pages holds some of the requests; prompts are read in chunks beside others' rounds, or in slices of
layers between them, where rows do not depend on their pass, as they do not in float64.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial

from outdraft.cache.config import CacheConfig
from outdraft.core.request import Request
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.testing.audit import require
from outdraft.testing.contract.forced import Lines
from outdraft.testing.contract.ground import GREEDY, LENGTH, SEEDED, agrees, requests
from outdraft.testing.contract.reuse import runner_of
from outdraft.testing.in_slices import in_slices
from outdraft.testing.subject import Outcome, Subject, collect, join

_PAGES = 4  # of 16 rows; the requests together want about four times as many


def crowds_write_the_same(subject: Subject, *, kinds: Seq[bool] = (True, False), length: int = LENGTH) -> None:
    """Joins, a cancellation, preemptions, prefix hits, mixed and sliced passes, greedy and seeded requests together.

    `kinds`: crowds with prefix hits, mixed and sliced passes, or without. `length`: tokens of a text.
    """
    settings = [replace(params, max_tokens=length) for params in (SEEDED, GREEDY)]
    asked = [request for pair in zip(*map(requests, settings), strict=True) for request in pair]
    asked.append(replace(asked[6], prompt_token_ids=(*asked[6].prompt_token_ids, 4)))
    # Two more texts have a form, which is given every token once, however often they are read.
    asked += [replace(asked[i], constraint=partial(Lines, subject.vocab_size)) for i in (4, 7)]
    for mixes in kinds:
        cache = CacheConfig(layout="paged", num_pages=_PAGES, prefixes=mixes, poison=True)
        with in_slices(mixes):
            _run(subject, asked if mixes else asked[4:], cache, mixes=mixes)


def _run(subject: Subject, asked: list[Request], cache: CacheConfig, *, mixes: bool) -> None:
    settings = SchedulerSettings(max_num_seqs=9, max_num_batched_tokens=12)
    engine = subject.engine(cache=cache, scheduling=settings)
    runner = runner_of(engine)
    if mixes:
        if runner.shared is not None:
            runner.shared.unit = 16
        engine.parts.room.mixes = True  # type: ignore[misc]
        engine.parts.room.slices = runner.num_layers  # type: ignore[misc]
    outcomes: dict[int, Outcome] = {}
    join(engine, outcomes, asked[:5])
    for _ in range(6):
        collect(engine, outcomes)
    join(engine, outcomes, asked[5:])
    gone = list(outcomes.values())[1]
    engine.cancel(gone.seq)
    for _ in range(5000):
        if not engine.has_work:
            break
        collect(engine, outcomes)
    require(not engine.has_work, f"{subject.row.name}: {len(engine.waiting)} requests never got room")
    for outcome in outcomes.values():
        wanted = subject.oracle(outcome.seq.request)
        agrees(subject, outcome, wanted[: outcome.seq.num_output] if outcome is gone else wanted, "in a crowd")
    require(
        sum(outcome.seq.num_preempted for outcome in outcomes.values()) > 0,
        f"{subject.row.name}: no request had to give back memory, so this check shows nothing",
    )
    require(
        engine.parts.target.num_sliced > 0 or not mixes,  # type: ignore[attr-defined]
        f"{subject.row.name}: no prompt was read in slices, so this check does not show that they change nothing",
    )
    runner.cache.check()
    free = engine.parts.room.free
    require(free == _PAGES, f"{subject.row.name}: {free} of {_PAGES} pages are free after all requests")
