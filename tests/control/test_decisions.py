"""What every policy decides in a few scripted worlds, as it was when the record was made.

The other tests say what a policy must do; this one says that a number inside it was not changed by accident. Where a
change is meant, look at what it does to tokens a second, and write the file anew, with src and tests on the path:
`python tests/control/test_decisions.py`.
Data: policy and world -> a digest of all budgets, tokens and seconds.
"""

import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from control.test_every_policy import head_for
from control.world import World, sequence

from outdraft.core.draft import chain
from outdraft.core.learner_registry import learner_names
from outdraft.core.policy import Arm
from outdraft.core.registry import find, make_options, names

FILE = Path(__file__).parent / "decisions.json"
ROUNDS = 160
OPTIONS = {"bandit": ({"algorithm": "exp3"},)}  # beside the defaults


def swings(number, seq):
    """A text that repeats itself for a while, and then no more."""
    return 0.95 if (number // 40 + seq) % 2 else 0.15


def one():
    return World([0.8], [0.1], dice=random.Random(1)), [Arm(name="model")], False


def two():
    world = World([swings, 0.7], [0.001, 0.2], fixed=0.01, noise=0.3, offers=0.8, dice=random.Random(2))
    return world, [Arm(name="look-up", peek=peek_into(world)), Arm(name="model")], False


def crowd():
    world = World([0.6, swings, 0.85], [0.05, 0.002, 0.4], slope=0.15, noise=0.1, dice=random.Random(3))
    return world, [Arm(name="head"), Arm(name="look-up", peek=peek_into(world)), Arm(name="model")], True


def dear():
    return (
        World([0.4, 0.3], [0.9, 0.5], slope=0.3, offers=0.5, dice=random.Random(4)),
        [Arm(name="a"), Arm(name="b")],
        False,
    )


WORLDS = {"one": one, "two": two, "crowd": crowd, "dear": dear}


def peek_into(world):
    """What the first look-up would say: the world's tokens are all 1."""
    dice = random.Random(9)

    def peek(seq, budget):
        return chain(torch.tensor([1] + [1 if dice.random() < 0.7 else 2 for _ in range(budget.depth)]))

    return peek


def told(event, world):
    """The same event with what a drafter and a tree add: how sure it was, and which sibling was right."""
    ends = event.num_accepted < event.draft_depth
    sure = [0.5 + world.dice.random() / 2 for _ in range(event.num_accepted)] + [world.dice.random()] * ends
    ranks = [(world.dice.choice((0, 0, 0, 1, 2)), 3) for _ in range(event.num_accepted)] + [(3, 3)] * ends
    return replace(event, confidences=tuple(sure), choices=tuple(ranks))


def decisions(name, world_name, options):
    """A digest of what the policy decided and of what came of it."""
    world, arms, is_crowd = WORLDS[world_name]()
    method = find("policy", name)
    if name in learner_names("policy"):
        options, arms = {**options, **head_for(name, 4)}, [replace(arm, hands_states=True) for arm in arms]
    policy = method.build(make_options(method, options), arms)
    seqs, whole, tokens, seconds = [sequence(0)], hashlib.sha256(), 0, 0.0
    for number in range(ROUNDS):
        if is_crowd and number % 12 == 5:
            seqs.append(sequence(number, asks=(None, 3, 0)[number % 3], prompt=8 + number))
        if is_crowd and len(seqs) > 4:
            policy.end([seqs.pop(1)])
        budgets = policy.plan(seqs)
        for budget in budgets:
            shown = (budget.depth, budget.nodes, f"{budget.confidence:.8g}", f"{budget.survival:.8g}", budget.arm)
            whole.update(repr(shown).encode())
        events = [told(event, world) for event in world.step(seqs, budgets, number)]
        if number == 0:
            events = [replace(event, num_certain=7) for event in events]
        tokens += sum(len(event.tokens) for event in events)
        seconds += sum(event.times.draft + event.times.target for event in events)
        policy.update(events)
    return [whole.hexdigest()[:16], tokens, round(seconds, 4)]


CASES = [
    (name, world, i) for name in names("policy") for world in WORLDS for i in range(1 + len(OPTIONS.get(name, ())))
]


def decide(name, world, i):
    return decisions(name, world, ({}, *OPTIONS.get(name, ()))[i])


@pytest.mark.parametrize(("name", "world", "i"), CASES, ids=str)
def test_decisions_are_those_that_were_looked_at(name, world, i):
    known = json.loads(FILE.read_text())
    assert decide(name, world, i) == known.get(f"{name}/{world}/{i}"), (
        "meant, or new? then: python tests/control/test_decisions.py"
    )


if __name__ == "__main__":
    made = {"/".join(map(str, case)): decide(*case) for case in CASES}
    FILE.write_text("{\n" + ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in made.items()) + "\n}\n")
