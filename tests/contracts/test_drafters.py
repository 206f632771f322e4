"""Every drafter of the table against every assertion of the contract suite.

A drafter's first row is asked everything in `make test`, but only one of the four assertions about features of
requests: those are long, and drafters take them in turn. A drafter's other shapes are asked for greedy text at two
lengths and for the cache. The rest is asked where slow tests run.
"""

from dataclasses import replace

import pytest
from contracts.spec_rows import ROWS, TAUGHT, quick

from outdraft.core.drafter import arm_of, forget
from outdraft.core.events import StepTimes
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.options.params import SamplingParams
from outdraft.testing.contract import CHECKS, sampled_distribution_is_the_targets
from outdraft.testing.contract.forced import forced_tokens_write_the_same
from outdraft.testing.contract.guided import guided_requests_write_the_same
from outdraft.testing.contract.identity import greedy_equals_reference
from outdraft.testing.contract.masked import masked_requests_write_the_same
from outdraft.testing.contract.reuse import rows_are_taken_over
from outdraft.testing.contract.upkeep import cache_equals_recompute
from outdraft.testing.subject import Subject, run

FEATURES = (
    guided_requests_write_the_same,
    masked_requests_write_the_same,
    forced_tokens_write_the_same,
    rows_are_taken_over,
)
DRAFTERS = list(dict.fromkeys(row.drafter for row in ROWS))


def marks(row, check) -> tuple[pytest.MarkDecorator, ...]:
    """Which assertions `make test` asks of a row, and which are left to slow tests."""
    if check is cache_equals_recompute:
        return ()
    if check in FEATURES and (DRAFTERS.index(row.drafter) - FEATURES.index(check)) % len(FEATURES):
        return (pytest.mark.slow,)
    return quick(row)


ASKED = [
    pytest.param(row, check, id=f"{row.name}-{check.__name__}", marks=marks(row, check))
    for row in ROWS
    for check in CHECKS
] + [
    pytest.param(row, check, id=f"taught-{row.name}-{check.__name__}", marks=pytest.mark.slow)
    for row in TAUGHT
    for check in CHECKS
]
OTHERS = [pytest.param(row, id=row.name) for row in ROWS if quick(row)]
every_row = pytest.mark.parametrize("subject", ROWS, ids=lambda row: row.name, indirect=True)


@pytest.fixture(scope="module")
def subject(request, tmp_path_factory) -> Subject:
    return Subject(request.param, tmp_path_factory.mktemp("side"))


@pytest.mark.parametrize(("subject", "check"), ASKED, indirect=["subject"])
def test_contract(subject, check):
    check(subject)


@pytest.mark.parametrize("subject", OTHERS, indirect=True)
def test_another_shape_writes_the_same(subject):
    greedy_equals_reference(subject, depths=(1, 4), penalised=(5,))


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=quick(row)) for row in ROWS]
    + [pytest.param(row, id=f"taught-{row.name}", marks=pytest.mark.slow) for row in TAUGHT],
)
def test_sampled_distribution(row, tmp_path):
    sampled_distribution_is_the_targets(Subject(row, tmp_path, vocab_size=7))


@every_row
def test_the_suite_sees_drafts(subject):
    """A suite that never accepts a token proves little: every drafter but `none` drafts on this ground."""
    prompt = (5, 6, 7, 8) * 4
    outcome = run(subject.engine(), [Request(prompt_token_ids=prompt, params=SamplingParams(max_tokens=40))])[0]
    assert (outcome.stats.num_draft_tokens > 0) == (subject.row.drafter != "none")


class Peeking:
    """A policy that looks at a guess of every arm, deeper or flatter than it will ask for, before each round."""

    def __init__(self, depths):
        self.depths, self.arm = depths, None

    def plan(self, seqs):
        for seq in seqs:
            for depth in self.depths:
                self.arm.peek(seq, Budget(depth=depth))
        return [Budget(depth=3)] * len(seqs)

    def update(self, events):
        pass

    end = update


@every_row
def test_a_peek_leaves_no_trace(subject):
    """Of the drafters that may be peeked at: every round is as it would have been."""
    drafter = subject.engine().parts.drafter
    if arm_of(drafter, "a").peek is None:
        return
    prompts = [(5, 6, 7, 8) * 4, (1, 2, 3, 1, 2), tuple(range(30))]
    requests = [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=30)) for p in prompts]
    runs = []
    for depths in ((), (1, 9), (16,)):
        policy = Peeking(depths)
        engine = subject.engine(policy=policy)
        policy.arm = arm_of(engine.parts.drafter, "a")
        runs.append([[replace(e, times=StepTimes()) for e in one.events] for one in run(engine, requests)])
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("name", ["recycling", "suffix", "pia"])
def test_what_requests_leave_behind_can_be_forgotten(name, tmp_path):
    """A repeated prompt is drafted for as a new one, which it is not before."""
    row = next(row for row in ROWS if row.drafter == name)
    engine = Subject(row, tmp_path).engine()
    request = Request(prompt_token_ids=(5, 6, 7, 8) * 2, params=SamplingParams(max_tokens=24))
    first, again = (run(engine, [request])[0].stats.num_draft_tokens for _ in range(2))
    forget(engine.parts.drafter)
    assert run(engine, [request])[0].stats.num_draft_tokens == first != again
