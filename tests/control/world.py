"""A world with a scripted clock: what policies are tested in. No target, no drafter, no real second.

A guess of depth k by arm a is accepted token by token with the arm's chance of the moment; a step costs what the world
says. Data in: a policy; data out: tokens and seconds.
"""

import random
from dataclasses import dataclass, field, replace

from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.policy import Arm
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.options.params import SamplingParams

ARMS = [Arm(name=name) for name in "abc"]


def sequence(number=0, *, max_tokens=1_000_000, asks=None, prompt=8):
    request = Request(
        prompt_token_ids=(1,) * prompt, params=SamplingParams(max_tokens=max_tokens), num_speculative_tokens=asks
    )
    return Sequence(
        id=number,
        request=request,
        tokens=[1] * prompt,
        prompt_len=prompt,
        max_len=1 << 30,
        seed=0,
        coupled=False,
        eos_token_ids=frozenset(),
        coins=None,
        draft_coins=None,
    )


def judged(seq, depth, accepted, times):
    """A chain of this depth has been judged: the sequence's event, and its tokens."""
    tokens = (1,) * (accepted + 1)
    seq.tokens.extend(tokens)
    return StepEvent(
        seq_id=seq.id,
        tokens=tokens,
        num_draft_tokens=depth,
        draft_depth=depth,
        num_nodes=1 + depth,
        num_accepted=accepted,
        rejected=accepted < depth,
        times=times,
    )


@dataclass
class World:
    """`alphas[arm]`: chance of a token, a number or a function of (round, sequence); `costs[arm]`: seconds of one."""

    alphas: list
    costs: list
    slope: float = 0.02  # of a pass, for each row beyond the first
    fixed: float = 0.0  # seconds of any guess at all
    noise: float = 0.0
    per_text: tuple = ()  # arms that take as long again for each sequence, as look-ups do
    offers: float = 1.0  # how often an arm has anything to say
    dice: random.Random = field(default_factory=lambda: random.Random(5))

    def pass_cost(self, rows):
        return 1 + self.slope * (rows - 1)

    def alpha(self, arm, number, seq):
        known = self.alphas[arm]
        return known(number, seq) if callable(known) else known

    def step(self, seqs, budgets, number):
        """One event for each sequence."""
        made, deepest, crowds = [], {}, {}
        for seq, budget in zip(seqs, budgets, strict=True):
            depth = budget.depth if self.dice.random() < self.offers else 0
            if budget.depth:
                deepest[budget.arm] = max(deepest.get(budget.arm, 0), budget.depth)
                crowds[budget.arm] = crowds.get(budget.arm, 0) + 1 if budget.arm in self.per_text else 1
            accepted = 0
            while accepted < depth and self.dice.random() < self.alpha(budget.arm, number, seq.id):
                accepted += 1
            made.append((seq, depth, accepted))
        rows = sum(1 + depth for _, depth, _ in made)
        shake = 1 + self.noise * (self.dice.random() - 0.5)
        draft = sum((self.fixed + self.costs[arm] * depth) * crowds[arm] for arm, depth in deepest.items()) * shake
        times = StepTimes(draft=draft / len(seqs), target=self.pass_cost(rows) * shake / len(seqs))
        return [judged(seq, depth, accepted, times) for seq, depth, accepted in made]

    def best(self, number, deepest=16, seq=0):
        """Tokens a second of the oracle, which knows every chance: (rate, arm, depth)."""
        found = [(1.0, 0, 0)]
        for arm in range(len(self.alphas)):
            alpha = self.alpha(arm, number, seq)
            for depth in range(1, deepest + 1):
                tokens = 1 + self.offers * sum(alpha**i for i in range(1, depth + 1))
                passing = self.offers * self.pass_cost(1 + depth) + (1 - self.offers) * 1
                found.append((tokens / (self.fixed + self.costs[arm] * depth + passing), arm, depth))
        return max(found)


class Working(World):
    """The policy's own work shows: `work` seconds before every pass that was planned."""

    work = 0.05

    def step(self, seqs, budgets, number):
        made = super().step(seqs, budgets, number)
        share = self.work / len(seqs)
        return [replace(one, times=StepTimes(draft=one.times.draft + share, target=one.times.target)) for one in made]


@dataclass
class Run:
    """What came of it, round by round."""

    tokens: list
    seconds: list
    budgets: list

    def rate(self, start=0, stop=None):
        return sum(self.tokens[start:stop]) / sum(self.seconds[start:stop])


def drive(policy, world, rounds, seqs=None, start=0):
    """So many rounds of one batch."""
    seqs = seqs or [sequence()]
    run = Run([], [], [])
    for number in range(start, start + rounds):
        budgets = policy.plan(seqs)
        events = world.step(seqs, budgets, number)
        policy.update(events)
        run.tokens.append(sum(len(event.tokens) for event in events))
        run.seconds.append(sum(event.times.draft + event.times.target for event in events))
        run.budgets.append(budgets)
    return run
