"""Rows that an earlier text left: later texts that begin alike take them over, and write what they would have written.

The drafter does not hear of such rows, and may have left rows of its own.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.cache.config import CacheConfig
from outdraft.core.cache import PAGE
from outdraft.core.request import Request
from outdraft.engine.loop import Engine
from outdraft.engine.runner import Runner
from outdraft.options.params import SamplingParams
from outdraft.testing.audit import AuditedTarget, require
from outdraft.testing.contract.ground import GREEDY, SEEDED, agrees, requests
from outdraft.testing.subject import Outcome, Subject, run

_LONG = tuple([3, 1, 4, 1, 5, 9, 2, 6] * 4 + [5, 3, 5])  # two pages and three tokens


def runner_of(engine: Engine) -> Runner:
    """The target behind the audit of a subject's engine."""
    target = engine.parts.target
    assert isinstance(target, AuditedTarget) and isinstance(target.target, Runner)
    return target.target


def rows_are_taken_over(subject: Subject, *, settings: Seq[SamplingParams] = (GREEDY, SEEDED)) -> None:
    """The same prompt again, a conversation that goes on, another end of the same beginning, another salt."""
    shared = CacheConfig(layout="paged", prefixes=True)
    for params in (replace(one, max_tokens=10) for one in settings):
        engine = subject.engine(cache=shared, recheck=True)
        runner = runner_of(engine)
        assert runner.shared is not None
        runner.shared.unit = PAGE  # float64: reading in other pieces changes no id
        first = replace(requests(params)[0], prompt_token_ids=_LONG)
        written = _check(subject, engine, first, 0)
        again = 0 if engine.parts.drafter.needs.prompt_taps else PAGE
        _check(subject, engine, first, again)
        _check(subject, engine, replace(first, prompt_token_ids=(*_LONG, *written.seq.output[:9], 7, 7, 8)), again)
        _check(subject, engine, replace(first, prompt_token_ids=(*_LONG[:30], 8)), 0)
        _check(subject, engine, replace(first, cache_salt="of another user"), -1)
        runner.cache.check()


def _check(subject: Subject, engine: Engine, request: Request, least: int) -> Outcome:
    """It writes what it should, over at least so many rows of others; -1: over none at all."""
    (outcome,) = run(engine, [request])
    agrees(subject, outcome, subject.oracle(request), "over rows of an earlier text")
    taken = outcome.seq.num_taken_over
    require(taken >= least, f"{subject.row.name}: {taken} rows of an earlier text were taken over, {least} are there")
    require(least >= 0 or not taken, f"{subject.row.name}: {taken} rows of another salt were taken over")
    return outcome
