"""The policy batch_budget: which drafted slots are verified, what the first slot that is not teaches, exactness.

The planted block drafter writes eight slots at one price. It knows how hard each slot is, and overstates its chances:
it says c ** 0.4 where the chance is c.
"""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from contracts.sides import random_heads, twin
from control.test_every_policy import distribution_of
from control.world import sequence

from outdraft.control.batch_budget import BatchBudgetOptions, BatchBudgetPolicy, _Cut, _label
from outdraft.core.draft import Draft, chain
from outdraft.core.events import Source, StepEvent, StepTimes
from outdraft.core.policy import Arm, Budget
from outdraft.core.request import Request
from outdraft.decode.shield import ShieldedPolicy
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto

SLOTS, DRAFT, PASS, ROW = 8, 0.15, 1.0, 0.06  # seconds of a block, of a pass, and of each row in it


def test_texts_without_a_guess_have_rows_in_the_pass():
    policy, asked = scripted(True), []
    policy.costs.passes = lambda rows: asked.append(rows) or 0.02 * rows
    seqs = [sequence(i) for i in range(3)]
    policy.plan(seqs)
    policy.cut(seqs[:1], [chain([1, 2, 3], confidence=torch.tensor([1.0, 0.9, 0.9]))])
    assert min(asked) == 3


def test_a_round_of_which_nothing_was_heard_is_forgotten():
    policy, seqs = scripted(True), [sequence(0)]
    policy.plan(seqs)
    policy.cut(seqs, [chain([1, 2, 3], confidence=torch.tensor([1.0, 1e-6, 1e-6]))])
    assert policy._cuts
    policy.plan(seqs)
    assert not policy._cuts


class Block:
    """Texts whose slots have chances of their own; `played`: tokens a second."""

    def __init__(self, seed, confident=True):
        self.dice, self.confident = random.Random(seed), confident
        self.hard = {}  # text -> whether it is hard now

    def slots(self, text):
        if self.dice.random() < 0.1:
            self.hard[text] = self.dice.random() < 0.5
        hard = self.hard.get(text, False)
        return [self.dice.uniform(0.1, 0.5) if hard else self.dice.uniform(0.8, 0.98) for _ in range(SLOTS)]

    def played(self, policy, rounds, count, depth=SLOTS):
        seqs, tokens, seconds = [sequence(i) for i in range(count)], 0.0, 0.0
        for number in range(rounds):
            budgets = policy.plan(seqs) if policy else [Budget(depth=SLOTS)] * count
            chances = [self.slots(i) for i in range(count)]
            draws = [[self.dice.random() < c for c in own] for own in chances]
            drafts = [
                chain([1, *range(2, 2 + SLOTS)], confidence=torch.tensor([1.0, *(c**0.4 for c in own)]))
                if self.confident
                else chain([1, *range(2, 2 + SLOTS)])
                for own in chances
            ]
            sizes = [1] * count if policy else [depth + 1] * count
            if policy and budgets[0].depth:
                sizes = policy.cut(seqs, drafts)
            rows = sum(sizes)
            times = StepTimes(
                draft=DRAFT / count if budgets[0].depth and depth else 0.0, target=(PASS + ROW * (rows - count)) / count
            )
            events = [
                judged(seq, draft, size, right, times)
                for seq, draft, size, right in zip(seqs, drafts, sizes, draws, strict=True)
            ]
            if policy:
                policy.update(events)
            if number >= rounds // 3:
                tokens += sum(len(event.tokens) for event in events)
                seconds += sum(event.times.draft + event.times.target for event in events)
        return tokens / seconds


def judged(seq, draft, size, right, times):
    """A greedy target that says the slot's token where `right`, and 0 elsewhere."""
    depth = size - 1
    accepted = next((i for i, one in enumerate(right[:depth]) if not one), depth)
    after = int(draft.tokens[accepted + 1]) if accepted < len(right) and right[accepted] else 0
    sure = draft.confidence[1 : min(accepted, depth - 1) + 2].tolist() if draft.confidence is not None and depth else []
    return StepEvent(
        seq_id=seq.id,
        tokens=(*draft.tokens[1 : accepted + 1].tolist(), after),
        sources=(*[Source.ACCEPTED] * accepted, Source.BONUS),
        num_draft_tokens=depth,
        draft_depth=depth,
        num_nodes=size,
        num_accepted=accepted,
        rejected=accepted < depth,
        confidences=tuple(sure),
        times=times,
    )


@pytest.mark.parametrize("count", [1, 6])
@pytest.mark.parametrize("confident", [True, False])
def test_it_makes_more_tokens_a_second_than_every_fixed_depth(count, confident):
    rounds = 3000 // count
    best = max(Block(1).played(None, rounds, count, depth) for depth in range(SLOTS + 1))
    policy = BatchBudgetPolicy(BatchBudgetOptions(num_speculative_tokens=SLOTS), Arm(name="a", foretells=True))
    own = Block(1, confident).played(policy, rounds, count)
    assert own > (1.06 if confident else 1.02) * best, (own, best)


def test_a_drafter_that_is_never_right_is_asked_now_and_then():
    policy = BatchBudgetPolicy(BatchBudgetOptions(retry=32), Arm(name="a"))
    block, asked = Block(2), []
    block.slots = lambda text: [0.01] * SLOTS
    plan = policy.plan
    policy.plan = lambda seqs: [asked.append(budget.depth > 0) or budget for budget in plan(seqs)]
    block.played(policy, 640, 1)
    assert sum(asked[64:]) == sum(1 for i in range(64, 640) if i % 32 == 0)


def event_of(tokens, depth, accepted):
    return StepEvent(seq_id=0, tokens=tokens, draft_depth=depth, num_accepted=accepted, num_draft_tokens=depth)


def test_the_label_of_the_first_slot_that_is_not_verified():
    assert _label(event_of((5, 6, 7), 2, 2), _Cut(4, 2, 7)) is True
    assert _label(event_of((5, 6, 8), 2, 2), _Cut(4, 2, 7)) is False
    assert _label(event_of((5, 7), 2, 1), _Cut(4, 2, 7)) is None  # a slot before it was rejected
    assert _label(event_of((5, 6), 2, 2), _Cut(4, 2, 7)) is None  # the text ended before it
    assert _label(event_of((5, 6, 7), 2, 2), _Cut(4, 2)) is None  # drawn: the target's token tells nothing
    assert _label(event_of((7,), 0, 0), _Cut(4, 0, 7)) is True  # nothing was verified
    assert _label(event_of((5, 7), 1, 1), _Cut(4, 2, 7)) is None  # memory had room for less


def test_where_the_label_is_unbiased():
    """Chance of acceptance against chance that the target's token is the guess, on all distributions of a grid."""
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.2, 0.6])
    for guess in range(3):  # a deterministic guess: one-hot q
        one = torch.zeros(3)
        one[guess] = 1
        assert torch.minimum(p, one).sum() == p[guess]
    assert torch.minimum(p, q).sum() > (p * q).sum() + 0.2  # a drawn one: it would be learned far too low
    policy = BatchBudgetPolicy(BatchBudgetOptions(), Arm(name="a", foretells=True))
    for coupled, greedy, told in ((False, False, False), (True, False, True), (False, True, True)):
        seq = sequence()
        seq.coupled = coupled
        params = SamplingParams(temperature=0.0 if greedy else 1.0)
        seq.request = replace(seq.request, params=params)
        draft = chain([1, 2, 3], torch.full((3, 5), 0.2), confidence=torch.tensor([1.0, 1e-4, 1e-4]))
        policy._rounds[1] = [9.0, 1e6, 1.0]
        policy.costs.passes.add(1, 1.0)
        policy.costs.passes.add(3, 3.0)
        policy.cut([seq], [draft])
        assert (policy._cuts[0].token is not None) == told


def scripted(foretells):
    """A policy whose clock makes it cut, whatever was measured."""
    policy = BatchBudgetPolicy(BatchBudgetOptions(num_speculative_tokens=3), Arm(name="a", foretells=foretells))
    policy._is_drafting = lambda count: True
    policy._rate, policy._plain_rate = lambda count: 20.0, lambda count: 0.0
    policy.costs.passes = lambda rows: 0.02 * rows
    policy.costs.add = lambda events, chosen: 1.0
    policy.calibration = lambda sure: sure
    policy.reliability = SimpleNamespace(mean=0.6, add=lambda sure, accepted: None, fit=lambda: policy.calibration)
    return policy


def test_a_drawn_guess_keeps_its_distribution():
    """Cut by the tokens before a slot; by the token's own probability, which is a fault, the test fails."""
    right, drafted = distribution_of(scripted(False))
    assert right.passes, right
    assert 100 < drafted < 1100  # some slots are cut, of some 450 texts of three tokens
    wrong, _ = distribution_of(scripted(True))  # the confidence is said to know nothing of its token
    assert not wrong.passes, wrong


def test_trees_are_verified_whole():
    policy = scripted(True)
    tree = Draft(
        tokens=torch.tensor([1, 2, 3]), parents=torch.tensor([-1, 0, 0]), confidence=torch.tensor([1.0, 1e-6, 1e-6])
    )
    line = chain([1, 2, 3], confidence=torch.tensor([1.0, 1e-6, 1e-6]))
    assert policy.cut([sequence(0), sequence(1)], [tree, line]) == [3, 1]


@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 7}])
def test_texts_of_a_block_drafter_do_not_depend_on_it(params, tmp_path):
    shape = {"taps": (0, 2), "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "head_dim": 8, "block_size": 5}
    row = DrafterRow(drafter="dspark", side=random_heads("dspark", **shape, rank=4), options={"width": 1})
    subject = Subject(row, tmp_path)
    requests = [
        Request(prompt_token_ids=p, params=SamplingParams(max_tokens=n, **params))
        for p, n in (((5, 6, 7, 8) * 4, 20), ((1, 2, 3), 14), (tuple(range(30)), 9))
    ]
    policy, sizes = scripted(True), []
    policy.costs.passes = lambda rows: 0.03 * rows
    policy._options = BatchBudgetOptions(num_speculative_tokens=5)
    cut = policy.cut

    def watched(seqs, drafts):
        assert all(draft.confidence is not None for draft in drafts)
        sizes.append([(size, draft.num_nodes) for size, draft in zip(cut(seqs, drafts), drafts, strict=True)])
        return [size for size, _ in sizes[-1]]

    policy.cut = watched
    outcomes = run(subject.engine(policy=policy, verifier=Auto()), requests)
    assert [outcome.seq.output for outcome in outcomes] == [subject.oracle(request) for request in requests]
    flat = [pair for batch in sizes for pair in batch]

    assert any(1 < size < most for size, most in flat) and any(len(batch) > 1 for batch in sizes)


@pytest.mark.logs_faults
def test_a_cut_that_raises_costs_nothing():
    class Raising(BatchBudgetPolicy):
        def cut(self, seqs, drafts):
            raise ZeroDivisionError

    policy = ShieldedPolicy(Raising(BatchBudgetOptions(), Arm(name="a", foretells=True)))
    budgets = policy.plan([sequence(0), sequence(1)])
    assert budgets[0].cut is budgets[1].cut
    assert budgets[0].cut([sequence(0)], [chain([1, 2, 3])]) == [3]


@pytest.mark.parametrize(
    ("options", "message"), [({"memory": 1}, "memory"), ({"every": 0}, "every"), ({"retry": 1}, "retry")]
)
def test_bad_options(options, message):
    with pytest.raises(ConfigError, match=message):
        BatchBudgetOptions(**options)


def test_what_is_drafted_during_the_pass_is_never_cut(tmp_path):
    """A drafter that goes on behind whole guesses: the policy is not asked."""

    def side(target, directory):
        return {"drafter": {"method": "draft_model", **twin(target, directory)}}

    row = DrafterRow(drafter="pearl", side=side)
    subject = Subject(row, tmp_path)
    policy, asked = scripted(True), []
    policy.cut = lambda seqs, drafts: asked.append(len(seqs)) or [1] * len(seqs)
    request = Request(prompt_token_ids=(1, 2, 3), params=SamplingParams(max_tokens=12))
    (outcome,) = run(subject.engine(policy=policy, verifier=Auto()), [request])
    assert outcome.seq.output == subject.oracle(request) and outcome.stats.num_draft_tokens and not asked


def test_a_trial_verifies_a_slot_of_each_draft():
    """What is never verified is not learned: of drawn guesses nothing else tells."""
    policy = scripted(True)
    seqs = [sequence(0), sequence(1)]
    drafts = [chain([1, 2, 3], confidence=torch.tensor([1.0, 1e-6, 1e-6])), chain([1])]
    assert policy.cut(seqs, drafts) == [1, 1]
    policy._least = 1
    assert policy.cut(seqs, drafts) == [2, 1]
