"""The tree's size follows measured rates and what a pass costs; the search itself: tests/verify/test_best_trees.py."""

import random
from time import process_time

import pytest
from control.world import ARMS, sequence

from outdraft.control.hardware_tree import HardwareTreeOptions, HardwareTreePolicy
from outdraft.core.events import StepEvent, StepTimes
from outdraft.options.errors import ConfigError


def drive(policy, *, slope, ranks, draft=0.05, rounds=400, seed=0):
    """Rounds of a tree drafter: children of rank k are accepted with ranks[k]; bushy near the root."""
    dice, seq = random.Random(seed), sequence()
    for _ in range(rounds):
        (budget,) = policy.plan([seq])
        choices, accepted = [], 0
        for level in range(budget.depth):
            width = max(1, min(len(ranks), budget.nodes // (1 + level)))
            rank = next((k for k in range(width) if dice.random() < ranks[k] / (1 - sum(ranks[:k]))), width)
            choices.append((rank, width))
            if rank == width:
                break
            accepted += 1
        rows = 1 + (budget.nodes if budget.depth else 0)
        times = StepTimes(draft=draft * budget.depth, target=1 + slope * (rows - 1))
        policy.update(
            [
                StepEvent(
                    seq_id=0,
                    tokens=(1,) * (accepted + 1),
                    num_nodes=rows,
                    draft_depth=budget.depth,
                    num_draft_tokens=rows - 1,
                    num_accepted=accepted,
                    choices=tuple(choices),
                    times=times,
                )
            ]
        )
    return policy


RANKS = (0.55, 0.2, 0.1)


def test_rates_by_rank_are_measured():
    policy = drive(HardwareTreePolicy(HardwareTreeOptions(), ARMS[0]), slope=0.01, ranks=RANKS, rounds=1500)
    assert policy.rates[:3] == pytest.approx(RANKS, abs=0.06)
    assert all(rate >= later for rate, later in zip(policy.rates[3:], policy.rates[4:], strict=False))


def test_a_costly_row_makes_a_small_tree():
    sizes = [
        drive(HardwareTreePolicy(HardwareTreeOptions(), ARMS[0]), slope=slope, ranks=RANKS).nodes
        for slope in (0.0, 0.02, 0.2)
    ]
    assert sizes[0] == 48 > sizes[1] > sizes[2] >= 1


def test_nothing_where_nothing_pays():
    policy = drive(HardwareTreePolicy(HardwareTreeOptions(), ARMS[0]), slope=0.3, ranks=(0.05, 0.01), draft=0.3)
    assert policy.depth == 0 and policy.plan([sequence()])[0].depth == 0


@pytest.mark.parametrize("every", [1, 8])
def test_where_nothing_paid_it_is_tried_again(every):
    """After a text of which no guess was right comes one of which all are."""
    policy = HardwareTreePolicy(HardwareTreeOptions(every=every), ARMS[0])
    drive(policy, slope=0.3, ranks=(0.05, 0.01), draft=0.3)
    assert policy.depth == 0
    drive(policy, slope=0.01, ranks=(0.98, 0.01), draft=0.01, rounds=200 * every)
    assert policy.depth > 0


def test_a_pass_that_reads_a_prompt_is_no_round():
    policy = HardwareTreePolicy(HardwareTreeOptions(), ARMS[0])
    for _ in range(100):
        policy.update([StepEvent(seq_id=7, num_certain=32, times=StepTimes(target=1.0))])
    sizes = []
    for _ in range(4):
        sizes.append(policy.plan([sequence()])[0].nodes)
        policy.update([StepEvent(seq_id=0, tokens=(1,), num_nodes=1 + sizes[-1], times=StepTimes(draft=1, target=1))])
    assert sizes == [1, 8, 16, 48], "the sizes that measure the curve"


def test_no_search_holds_up_the_requests():
    """A tree of 48 nodes has at most 48 levels, however many tokens are asked for; the longest search allowed ends."""
    assert HardwareTreeOptions(num_speculative_tokens=4096).depth == 48
    started = process_time()
    drive(
        HardwareTreePolicy(HardwareTreeOptions(nodes=512, width=32, num_speculative_tokens=16, every=60), ARMS[0]),
        slope=0.01,
        ranks=RANKS,
        rounds=60,
    )
    assert process_time() - started < 4
    with pytest.raises(ConfigError, match="nodes=512, width=64 and num_speculative_tokens=16 make the search"):
        HardwareTreeOptions(nodes=512, width=64, num_speculative_tokens=16)
