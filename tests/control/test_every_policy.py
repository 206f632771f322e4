"""Every policy of the catalogue: it changes cost, never the text nor its distribution, whatever its clock says.

Texts are compared with the naive oracle's under scripted clocks; sampled texts of a drafter that heeds every budget
(cutoffs for tokens and paths included) are judged by chi-square; a drafter that drops unsure tokens must fail there.
"""

import gc
import random
from dataclasses import fields, replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import mkdtemp
from types import FunctionType, ModuleType

import pytest
import torch
from contracts.sides import randomise, twin
from control.world import World, drive, sequence

from outdraft.core.draft import chain
from outdraft.core.drafter import Traits
from outdraft.core.events import StepTimes
from outdraft.core.learner_registry import learner_names
from outdraft.core.policy import Arm
from outdraft.core.registry import find, make_options, names
from outdraft.core.request import Request
from outdraft.core.target import Needs
from outdraft.decode.parts import Parts
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.limits import cutoffs_of
from outdraft.engine.loop import Engine
from outdraft.options.params import SamplingParams
from outdraft.sampling.warp import warp_nodes
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.statistics import judge_counts
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto
from outdraft.verify.block import METHOD as BLOCK
from tests.helpers.fakes import AuditedTarget, TableTarget

POLICIES = names("policy")
VOCAB, LENGTH, TEXTS = 5, 3, 450
QUICK = {
    "calibrated": {"every": 1},
    "roc": {"every": 1},
    "history": {"window": 4, "pause": 0},
    "fallback": {"inner": "bandit", "tokens": 3},
    "probe": {"window": 4, "every": 6, "trial": 2},
    "hardware_tree": {"every": 4},
    "batch_budget": {"every": 1, "rests": False},
}
EXTRA = {"bandit": {"algorithm": "exp3"}}


def build(name, arms=("a",), states=VOCAB, **options):
    """`states`: the width of those that the drafter hands over, where a policy reads them."""
    method = find("policy", name)
    options = {**head_for(name, states), **QUICK.get(name, {}), **options}
    return method.build(make_options(method, options), [Arm(name=arm, hands_states=True) for arm in arms])


class Clocked:
    """A policy whose seconds are thrown, not measured. `draft`: those of a guess, at most."""

    def __init__(self, policy, seed, draft=1.0):
        self.policy, self.dice, self.draft = policy, random.Random(seed), draft
        self.plan, self.ended = policy.plan, []

    def end(self, seqs):
        self.ended += [seq.id for seq in seqs]
        self.policy.end(seqs)

    def update(self, events):
        times = StepTimes(draft=self.draft * self.dice.random(), target=self.dice.random(), rest=self.dice.random() / 9)
        self.policy.update([replace(event, times=times) for event in events])


@cache
def head_for(name, width):
    """Options that name a head of random weights, for a policy that has learned to read states."""
    if name not in learner_names("policy"):
        return {}
    from outdraft.control.acceptance_head.net import AcceptanceConfig, AcceptanceNet, save_acceptance

    net = AcceptanceNet(AcceptanceConfig(width=width, num_blocks=1, draft="", temperature=1.0))
    randomise(net, seed=2)
    save_acceptance(net, place := Path(mkdtemp()))
    return {"model": str(place)}


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    """A drafter that hands states over."""
    return Subject(DrafterRow(drafter="draft_model", side=twin), tmp_path_factory.mktemp("chains"))


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    def side(target, directory):
        return {"drafters": [{"method": "draft_model", "width": 2, **twin(target, directory)}, "ngram"]}

    return Subject(DrafterRow(drafter="several", side=side), tmp_path_factory.mktemp("side"))


@pytest.mark.parametrize("name", POLICIES)
def test_no_text_depends_on_it(subject, chains, name):
    """Greedy and seeded, each on a clock: alone, and in a batch where requests have limits and wishes of their own."""
    subject = chains if name in learner_names("policy") else subject
    prompts = [((5, 6, 7, 8) * 4, 20, None), ((1, 2, 3), 14, 2), (tuple(range(30)), 9, 0), ((9,), 1, None)]
    for seed, params in enumerate(({}, {"temperature": 1.0, "seed": 7})):
        requests = [
            Request(prompt_token_ids=p, params=SamplingParams(max_tokens=n, **params), num_speculative_tokens=k)
            for p, n, k in prompts
        ]
        wanted = [subject.oracle(request) for request in requests]
        own = EXTRA.get(name, {}) if seed else {}
        policy = Clocked(build(name, ("draft_model", "ngram"), states=32, **own), seed)
        engine = subject.engine(policy=policy, verifier=Auto())
        outcomes = run(engine, requests)
        assert [outcome.seq.output for outcome in outcomes] == wanted
        again = run(engine, requests[:1])[0]  # with what it has learned
        assert again.seq.output == wanted[0]
        assert sorted(policy.ended) == [outcome.seq.id for outcome in (*outcomes, again)]
        assert outcomes[2].stats.num_draft_tokens == 0  # its own wish
        deepest = max(event.draft_depth for event in outcomes[1].events)
        assert deepest <= 2 or name == "fixed"
        assert outcomes[0].stats.num_draft_tokens > 0


class TableDrafter:
    """Chains drawn from a table, ended where the budget says; `drops`: the unsure token is thrown away (a fault)."""

    needs = Needs()
    traits = Traits()

    def __init__(self, table, drops=False):
        self.table, self.drops = table, drops

    def begin(self, seqs):
        pass

    def propose(self, seqs, budgets):
        texts = [list(seq.tokens[:-1]) for seq in seqs]

        def feed(step, rows, tokens, num_open):
            for row, token in zip(rows, tokens, strict=True):
                texts[row].append(token)
            states[:] = [self.table.next_logits(texts[row]) for row in rows[:num_open]]
            return torch.stack(states)

        depths, states = [budget.depth for budget in budgets], []
        network = ChainNetwork(feed=feed, states=lambda: torch.stack(states))
        drafts = grow_chains(seqs, depths, network, cutoffs_of(budgets), sample="match")
        if not self.drops:
            return drafts
        return [self._shorter(draft, budget) for draft, budget in zip(drafts, budgets, strict=True)]

    def _shorter(self, draft, budget):
        if draft.confidence is None or draft.num_nodes == 1 or draft.confidence[-1] >= budget.confidence:
            return draft
        return chain(draft.tokens[:-1], draft.q[: draft.num_nodes - 1])

    def observe(self, seen):
        pass

    def end(self, seqs):
        pass


def distribution_of(policy, drops=False):
    """Write short sampled texts by token rejection in one engine; the verdict on their distribution."""
    p, q = TableTarget(vocab_size=VOCAB, seed=1), TableTarget(vocab_size=VOCAB, seed=1, sharpness=1.5)
    rule = BLOCK.build(BLOCK.options())
    engine = Engine(
        Parts(target=AuditedTarget(p), drafter=TableDrafter(q, drops), verifier=rule, policy=Clocked(policy, 1, 0.1))
    )
    params = [SamplingParams(max_tokens=LENGTH, temperature=1.0, seed=i) for i in range(TEXTS)]
    outcomes = run(engine, [Request(prompt_token_ids=(1, 2), params=each) for each in params])
    contexts = [c for n in range(LENGTH) for c in product(range(VOCAB), repeat=n)]
    index = {context: i for i, context in enumerate(contexts)}
    counts = torch.zeros(len(contexts), VOCAB, dtype=torch.float64)
    for outcome in outcomes:
        for n, token in enumerate(outcome.seq.output):
            counts[index[tuple(outcome.seq.output[:n])], token] += 1
    seq = outcomes[0].seq
    distributions = torch.stack([warp_nodes(seq, p.next_logits([1, 2, *c])[None], [[]])[0].double() for c in contexts])
    return judge_counts(counts, distributions, 0), sum(outcome.stats.num_draft_tokens for outcome in outcomes)


@pytest.mark.parametrize("name", POLICIES)
def test_no_distribution_depends_on_it(name):
    verdict, drafted = distribution_of(build(name))
    assert verdict.passes, verdict
    assert drafted > TEXTS / 30  # `auto` seldom guesses where a text has three tokens


def test_a_drafter_that_drops_unsure_tokens_is_caught():
    verdict, _ = distribution_of(build("threshold", threshold=0.5), drops=True)
    assert not verdict.passes, verdict


def held(root, numbers):
    """Which of `numbers` can be reached from an object, through attributes and containers of any kind."""
    found, seen, open_ = set(), set(), [root]
    while open_:
        thing = open_.pop()
        if isinstance(thing, int) and thing in numbers:
            found.add(thing)
        elif id(thing) not in seen and not isinstance(thing, (type, ModuleType, FunctionType)):
            seen.add(id(thing))
            open_ += gc.get_referents(thing)
    return found


@pytest.mark.parametrize("name", POLICIES)
def test_it_forgets_sequences_that_are_over(name):
    policy, world = build(name, ("a", "b")), World([0.9, 0.2], [0.01, 0.3])
    ids = {100_000 + i for i in range(3)}
    over = [sequence(i) for i in ids]
    drive(policy, world, 60, over)
    policy.plan(over)  # cancelled between plan and update
    policy.end(over)
    drive(policy, world, 20, [sequence(7)])
    assert not held(policy, ids)


def test_a_policy_that_does_not_forget_is_caught():
    policy = build("estimator", ("a", "b"))
    policy.costs.forget = lambda seq: None
    drive(policy, World([0.9, 0.2], [0.01, 0.3]), 9, [sequence(100_000)])
    policy.end([sequence(100_000)])
    assert held(policy, {100_000}) == {100_000}


@pytest.mark.parametrize("name", POLICIES)
def test_nodes_stay_within_their_limit(name):
    """From the first round on, and whatever the other options begin with."""
    method = find("policy", name)
    for limit in {field.name for field in fields(method.options)} & {"nodes", "max_nodes", "batch_nodes"}:
        run = drive(method.build(make_options(method, {limit: 3}), [Arm(name="a")]), World([0.9], [0.01]), 100)
        assert all(budget.nodes is not None and budget.nodes <= 3 for (budget,) in run.budgets), limit


@pytest.mark.parametrize("name", POLICIES)
def test_arms_and_depths_stay_in_range(name):
    """With three arms, a limit and a clock: every budget is one that the drafter can be asked."""
    policy = build(name, ("a", "b", "c"), num_speculative_tokens=4)
    world = World([0.9, 0.2, 0.6], [0.01, 0.3, 0.1])
    run = drive(policy, world, 200, [sequence(i) for i in range(3)])
    for budgets in run.budgets:
        assert all(0 <= budget.depth <= 4 and 0 <= budget.arm < 3 for budget in budgets)
    nothing = drive(build(name, num_speculative_tokens=0), world, 20)
    assert all(budget.depth == 0 for (budget,) in nothing.budgets)
