"""Every drafter of the table against the contract.

`make test` asks each drafter's first row everything, on few runs (`at_once.py`), and its other shapes for texts.
Slow tests ask the other shapes, and drafts that were taught, one check more, in turn; sentinels, drafters of five
families, get each check of the kit, which cross what a square takes in turn.
"""

from dataclasses import replace

import pytest
from contracts.at_once import CHECKS, texts
from contracts.spec_rows import ROWS, TAUGHT, quick

from outdraft.core.drafter import arm_of, forget
from outdraft.core.events import StepTimes
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.options.params import SamplingParams
from outdraft.testing import contract
from outdraft.testing.contract import sampled_distribution_is_the_targets
from outdraft.testing.subject import Subject, run

SENTINELS = ("ngram", "draft_model", "eagle3", "early_exit", "lookahead")
SLOW = pytest.mark.slow
TURNS = {row.name: turn for turn, row in enumerate([*ROWS, *TAUGHT])}  # rows in a file are of other turns
FURTHER = [check for check in CHECKS if check is not texts]


def asked(row):
    """Texts, and of the first row of a drafter every other check, of the rest one in turn."""
    return [texts, *(FURTHER if row in ROWS and not quick(row) else [FURTHER[TURNS[row.name] % len(FURTHER)]])]


ASKED = [
    pytest.param(row, check, id=f"{row.name}-{check.__name__}", marks=() if check is texts else quick(row))
    for row in ROWS
    for check in asked(row)
] + [
    pytest.param(row, check, id=f"taught-{row.name}-{check.__name__}", marks=SLOW)
    for row in TAUGHT
    for check in asked(row)
]
CROSSED = [
    pytest.param(row, check, id=f"{row.name}-{check.__name__}", marks=SLOW)
    for row in ROWS
    if row.name in SENTINELS
    for check in contract.CHECKS
]
every_row = pytest.mark.parametrize("subject", ROWS, ids=lambda row: row.name, indirect=True)


@pytest.fixture(scope="module")
def subject(request, tmp_path_factory) -> Subject:
    return Subject(request.param, tmp_path_factory.mktemp("side"))


@pytest.mark.parametrize(("subject", "check"), ASKED, indirect=["subject"])
def test_contract(subject, check):
    check(subject, TURNS[subject.row.name])


@pytest.mark.parametrize(("subject", "check"), CROSSED, indirect=["subject"])
def test_contract_crossed(subject, check):
    check(subject)


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.name, marks=quick(row)) for row in ROWS]
    + [pytest.param(row, id=f"taught-{row.name}", marks=SLOW) for row in TAUGHT],
)
def test_sampled_distribution(row, tmp_path):
    sampled_distribution_is_the_targets(Subject(row, tmp_path, vocab_size=7), num_texts=120)


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
