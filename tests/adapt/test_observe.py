"""What is observed is what the engine counts, and what its rule looked at, in chains and trees, greedy and drawn."""

from collections import Counter
from dataclasses import replace
from math import exp
from types import SimpleNamespace

import pytest
import torch
from adapt.planted import draw

from outdraft.adapt.examined import Bin, Examined
from outdraft.adapt.kinds import Kind
from outdraft.adapt.observe import Observed
from outdraft.core.draft import Draft, Role, chain
from outdraft.core.drafter import Seen
from outdraft.core.verdict import Verdict
from outdraft.engine.llm import LLM
from outdraft.options.params import SamplingParams

PROMPTS = ("It was late when", "def f(x):", "The sea")


def seen(draft, logits=None, verdict=None):
    return Seen(seq=SimpleNamespace(id=0), start=0, num_committed=1, draft=draft, logits=logits, verdict=verdict)


def nearness(one, node):
    """p(x) / max p, the slow way."""
    p = torch.softmax(one.logits[int(one.draft.parents[node])].double(), 0)
    return float(p[int(one.draft.tokens[node])] / p.max())


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "drawn"])
@pytest.mark.parametrize("width", [1, 3], ids=["chain", "tree"])
@pytest.mark.parametrize("is_silent", [False, True], ids=["confident", "silent"])
def test_it_agrees_with_the_engines_counters(width, temperature, is_silent):
    drafter = {"name": "eagle3", "model": "zoo:eagle3", "width": width}
    policy = {"name": "threshold", "threshold": 1e-6}  # it asks for the draft's own probability, and ends no guess
    with LLM("zoo:target", drafter=drafter, policy=policy, num_speculative_tokens=4) as llm:
        parts, observed, events, near = llm.engine.parts, Observed(), [], Counter()
        observe, update = parts.drafter.observe, parts.policy.update

        def watch(several):
            for one in several:
                before = observed.whole.rounds
                if is_silent and one.draft is not None:
                    observed.add(replace(one, draft=replace(one.draft, confidence=None)))
                else:
                    observed.add(one)
                if one.draft is not None and one.draft.num_nodes > 1:
                    for i, node in enumerate(one.verdict.path):
                        near[i] += nearness(one, node)
                    if not one.verdict.bonus:
                        last = one.verdict.path[-1] if one.verdict.path else 0
                        eldest = one.draft.parents.tolist().index(last)
                        near[len(one.verdict.path)] += nearness(one, eldest)
                else:
                    assert observed.whole.rounds == before
            observe(several)

        parts.drafter.observe = watch
        parts.policy.update = lambda several: (events.extend(several), update(several))
        params = SamplingParams(max_tokens=40, temperature=temperature, seed=1, ignore_eos=True)
        results = llm.generate(list(PROMPTS), params)
    whole, stats = observed.whole, [one.stats for one in results]
    reached = sum((one.reached for one in stats), Counter())
    rejected = sum((one.first_rejection for one in stats), Counter())
    depth = max(reached)
    assert depth == 4 and sum(rejected.values()) > 10
    assert whole.rounds == sum(one.num_drafted_steps for one in stats)
    assert whole.reached == [reached[i + 1] for i in range(depth)]
    assert whole.first_rejection == [rejected[i + 1] for i in range(depth)]
    assert whole.hazards == pytest.approx([rejected[i + 1] / reached[i + 1] for i in range(depth)])
    assert whole.near == pytest.approx([near[i] for i in range(depth)], rel=1e-4)
    assert all(a < n for a, n in zip(whole.accepted[:2], whole.near[:2], strict=True)) or temperature
    said = [one.confidences for one in events]
    sure = [sum(one[i] for one in said if i < len(one)) for i in range(depth)]
    if is_silent:
        assert any(said) and not any(whole.said) and not any(one.count for one in observed.calibration)
    else:
        assert whole.sure == pytest.approx(sure) and whole.said == whole.reached and whole.right == whole.accepted
        assert sum(one.count for one in observed.calibration) == sum(reached.values())
        assert width > 1 or sum(one.right for one in observed.calibration) == sum(whole.accepted)


def test_tokens_that_a_prefix_forces_are_no_guesses():
    with LLM("zoo:target", drafter={"name": "eagle3", "model": "zoo:eagle3"}, num_speculative_tokens=4) as llm:
        observed, parts = Observed(), llm.engine.parts
        observe = parts.drafter.observe
        parts.drafter.observe = lambda several: ([observed.add(one) for one in several], observe(several))
        params = SamplingParams(max_tokens=40, forced_prefix=" and then there was nothing left to say of it all")
        (result,) = llm.generate(["It was late when"], params)
    assert result.stats.num_forced_tokens > 3
    assert observed.whole.reached == [result.stats.reached[i + 1] for i in range(max(result.stats.reached))]
    assert observed.whole.rounds < result.stats.num_drafted_steps


TREE = Draft(  # 0 -> 1, 2 (and a probe, 3); 2 -> 4, 5
    tokens=torch.tensor([9, 1, 2, 3, 4, 5]),
    parents=torch.tensor([-1, 0, 0, 0, 2, 2]),
    roles=torch.tensor([Role.VERIFY] * 3 + [Role.PROBE] + [Role.VERIFY] * 2),
    confidence=torch.tensor([1.0, 0.65, 0.25, 0.99, 0.45, 0.35]),
)


def test_a_tree_by_hand():
    """A younger child stands in for the eldest, which was wrong; below it all are rejected."""
    logits = torch.zeros(6, 10)
    logits[0, 7], logits[2, 4] = 3.0, -2.0
    observed = Observed()
    observed.add(seen(TREE, logits, Verdict((2,), 8, bonus=False)))
    whole = observed.whole
    assert (whole.reached, whole.accepted, whole.first_rejection) == ([1, 1], [1, 0], [0, 1])
    assert whole.near == pytest.approx([exp(-3.0), exp(-2.0)])
    assert whole.sure == pytest.approx([0.25, 0.45]) and whole.right == [1, 0]
    bins = {i: (one.count, one.right) for i, one in enumerate(observed.calibration) if one.count}
    assert bins == {6: (1, 0), 4: (1, 0)}
    observed.add(seen(TREE, logits, Verdict((1,), 8, bonus=True)))
    assert (observed.whole.reached, observed.whole.accepted) == ([2, 1], [2, 0])
    assert observed.calibration[6] == Bin(count=2, sure=pytest.approx(1.3), right=1)


def test_what_is_no_round_changes_nothing():
    observed, logits = Observed(), torch.zeros(2, 10)
    probe = Draft(
        tokens=torch.tensor([1, 2]), parents=torch.tensor([-1, 0]), roles=torch.tensor([Role.VERIFY, Role.PROBE])
    )
    observed.add(seen(None))
    observed.add(seen(chain([1]), logits[:1], Verdict((), 3, bonus=True)))
    observed.add(seen(probe, logits, Verdict((), 3, bonus=True)))
    assert observed == Observed()


def test_the_last_bin_holds_certainty():
    observed = Observed()
    sure = chain([1, 2, 3], confidence=torch.tensor([1.0, 1.0, 0.0]))
    observed.add(seen(sure, torch.zeros(3, 10), Verdict((1, 2), 3, bonus=True)))
    assert [one.count for one in observed.calibration] == [1, *[0] * 8, 1]


def filled(rounds, **options):
    made = Observed(**options)
    for accepted, sure in rounds.each():
        made.count(accepted, [1.0 if i < accepted else 0.0 for i in range(len(sure))], sure)
    return made


@pytest.mark.parametrize("rounds", [250, 1300])
def test_the_planted_rounds_of_the_tests_are_what_would_be_observed(rounds):
    planted = draw(Kind.DRIFT, rounds, 0)
    one, other = filled(planted), planted.observed()
    assert [block.reached for block in one.blocks] == [block.reached for block in other.blocks]
    assert [block.right for block in one.blocks] == [block.right for block in other.blocks]
    assert one.whole.sure == pytest.approx(other.whole.sure) and one.whole.rounds == other.whole.rounds == rounds
    assert sum(bin.count for bin in other.calibration) == sum(one.whole.said)
    assert sum(bin.right for bin in other.calibration) == sum(one.whole.right)


def test_memory_is_bounded_and_nothing_is_lost():
    planted = draw(Kind.HEALTHY, 2001, 0)
    small = filled(planted, block=10, most_blocks=16)
    assert len(small.blocks) <= 16 and small.block == 160
    assert small.whole.reached == filled(planted).whole.reached
    assert [one.rounds for one in small.blocks] == [160] * 12 + [81]


def test_recent_rounds_count_most():
    drift = draw(Kind.DRIFT, 4000, 0)
    made = filled(drift, memory=100)
    half = filled(draw(Kind.DRIFT, 4000, 0).last(2000), memory=100)
    assert made.recent.acceptance[0] == pytest.approx(half.recent.acceptance[0], abs=1e-6)
    assert made.whole.acceptance[0] - made.recent.acceptance[0] > 0.03
    assert made.recent.rounds == pytest.approx(101, rel=0.01)
    weights, value = 0.0, 0.0
    for accepted in drift.accepted.tolist():
        weights, value = weights / 1.01 + 1, value / 1.01 + (accepted > 0)
    assert made.recent.acceptance[0] == pytest.approx(value / weights)


def test_merging_adds_what_ran_side_by_side():
    one, other = (filled(draw(kind, 900, 3)) for kind in (Kind.HEALTHY, Kind.DRIFT))
    both = one.joined(other)
    assert both.whole.reached == (one.whole + other.whole).reached and len(both.blocks) == 9
    assert both.whole.sure == pytest.approx((one.whole + other.whole).sure) and both.whole.rounds == 1800
    assert both.recent.reached == pytest.approx((one.recent + other.recent).reached)
    alone = one.joined(Observed())
    assert (alone.blocks, alone.calibration, alone.block) == (one.blocks, one.calibration, one.block)
    long = filled(draw(Kind.DRIFT, 900, 3), block=10, most_blocks=8)
    assert long.joined(one).block == one.joined(long).block == max(long.block, 200)
    assert long.joined(one).whole.reached == both.whole.reached
    marked = Observed(calibration=[Bin(count=2, sure=0.1, right=1), *Observed().calibration[1:]])
    assert marked.joined(marked).calibration[0] == Bin(count=4, sure=0.2, right=2)


def test_a_copy_is_of_its_moment():
    made = filled(draw(Kind.DRIFT, 850, 3))
    copy, rounds, recent = made.copied(), made.whole.rounds, made.recent
    made.count(1, [1.0, 0.5], [0.9, 0.8])
    made.calibration[0].add(0.05, is_right=True)
    assert copy.whole.rounds == rounds == made.whole.rounds - 1 and copy.recent == recent != made.recent
    assert copy.calibration[0].count == made.calibration[0].count - 1
    copy.count(1, [1.0, 0.5], [0.9, 0.8])
    assert copy.recent == made.recent and copy.whole == made.whole


def test_depths_may_differ():
    assert (Examined(rounds=1, reached=[1.0]) + Examined(rounds=1, reached=[1.0, 1.0])).reached == [2.0, 1.0]
