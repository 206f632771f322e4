"""`auto` with a block drafter, whose guesses cost the same at any depth: the target's rows alone decide how deep.

python -m control.test_auto_blocks      the table of docs/methods/auto.md, with src and tests on the path
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from control.world import World, drive

from outdraft.control.auto.policy import AutoOptions, AutoPolicy
from outdraft.control.auto.trials import TRIALS
from outdraft.control.shared.curve import DraftCost
from outdraft.core.policy import Arm
from outdraft.core.registry import find, make_options

ROUNDS, SEEDS = 150, range(8)


@dataclass
class Blocks(World):
    """No guess is deeper than a block."""

    slots: int = 7

    def step(self, seqs, budgets, number):
        return super().step(seqs, [replace(budget, depth=min(budget.depth, self.slots)) for budget in budgets], number)


# chance of a token; passes that a block takes, and each of its tokens besides; of a row of the pass; tokens of a block
WORLDS = [
    (0.7, 0.6, 0.0, 0.03, 7),
    (0.7, 1.0, 0.0, 0.03, 7),
    (0.85, 0.6, 0.0, 0.03, 15),
    (0.85, 1.0, 0.0, 0.08, 15),
    (0.7, 0.3, 0.0, 0.08, 7),
    (0.85, 0.3, 0.08, 0.03, 15),  # a head that walks along the slots: depth costs something after all
]


def world(alpha, block, token, row, slots, seed=0):
    return Blocks([alpha], [token], slope=row, fixed=block, noise=0.2, slots=slots, dice=random.Random(seed))


def arm(one_pass):
    return Arm(name="block", one_pass=one_pass)


def best_fixed(case):
    """Tokens a second of the best depth, and that depth."""
    rate, _, depth = world(*case).best(0, deepest=case[-1])
    return rate, depth


def played(case, one_pass):
    """Of the best fixed depth's tokens a second, the share that `auto` makes; and the depths of its last rounds."""
    shares, depths, (best, _) = [], Counter(), best_fixed(case)
    for seed in SEEDS:
        run = drive(AutoPolicy(AutoOptions(), [arm(one_pass)]), world(*case, seed=seed), ROUNDS)
        shares.append(run.rate() / best)
        depths.update(min(budget.depth, case[-1]) for (budget,) in run.budgets[-50:])
    return sum(shares) / len(shares), depths


def test_blocks_are_guessed_as_deep_as_rows_pay():
    """Before the fact was known, blocks that cost much were thought dearer still where they were guessed deeper."""
    after, before = ([played(case, one_pass)[0] for case in WORLDS] for one_pass in (True, False))
    assert min(after) > 0.92 and sum(after) > sum(before) + 0.05


def test_one_block_has_taught_what_a_deeper_one_costs():
    for flat, most in ((True, 1.01), (False, 5)):
        cost = DraftCost(is_flat=flat)
        for depth in TRIALS:
            cost.add(depth, 0.6)
        again = DraftCost.recalled(json.loads(json.dumps(cost.kept())), is_flat=flat)
        for one in (cost, again):
            assert (one(15) < most * 0.6) and (flat or one(15) > 2 * 0.6)


@pytest.mark.parametrize("name", ["estimator", "routing", "hardware_tree", "calibrated", "batch_budget", "auto"])
def test_every_policy_that_measures_knows_it(name):
    method = find("policy", name)
    for one_pass in (True, False):
        policy = method.build(make_options(method, {}), [arm(one_pass)])
        (cost,) = (getattr(policy, "costs", None) or policy._costs).drafts
        cost.add(4, 0.6)
        assert (cost(8) < 0.7) == one_pass, name


def test_the_next_engine_knows_it_too():
    first = AutoPolicy(AutoOptions(), [arm(True)])
    drive(first, world(*WORLDS[0]), len(TRIALS) + 1)
    second = AutoPolicy(AutoOptions(), [arm(True)])
    second.recall(json.loads(json.dumps(first.keep())))
    for policy in (first, second):
        assert policy.costs.drafts[0](15) == pytest.approx(WORLDS[0][1], rel=0.15)


if __name__ == "__main__":
    for case in WORLDS:
        print(case, best_fixed(case), *(played(case, one_pass) for one_pass in (False, True)))
