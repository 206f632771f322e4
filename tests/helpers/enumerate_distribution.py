"""The exact distribution of what a rule emits, from the production code itself: replay it once for every outcome of
every coin.

    coins answer from a script; past its end they take the first possible answer and note the others
    run, multiply the probabilities, step the last answer on, run again ... until every script was played

In: a verifier, a target distribution, a drafter function over `DraftCoins`. Out: the joint distribution [V, ..., V] of
the next tokens over a fixed horizon, a round that ends early being completed by the target's own distribution. A rule
is lossless if and only if that distribution is the target's, up to rounding.
"""

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.packing import PackedDrafts
from outdraft.core.verdict import Verdict
from outdraft.core.verifier import Verifier
from tests.helpers.tables import Distribution, DraftFunction, one_sequence, score

T = TypeVar("T")


@dataclass(slots=True)
class _Fork:
    """One question that chance was asked: its possible answers and which one this replay gives."""

    answers: list[tuple[int, float]]  # (answer, probability > 0)
    at: int = 0


@dataclass(slots=True)
class Chance:
    """Answers from the script of one replay."""

    script: list[_Fork]
    asked: int = 0
    probability: float = 1.0

    def choose(self, weights: Seq[float]) -> int:
        """An index, with its weight as probability; indices of weight 0 are never answers."""
        if self.asked == len(self.script):
            possible = [(i, weight) for i, weight in enumerate(weights) if weight != 0]
            assert possible and all(weight > 0 for _, weight in possible), f"not a distribution: {list(weights)}"
            self.script.append(_Fork(possible))
        fork = self.script[self.asked]
        answer, weight = fork.answers[fork.at]
        self.asked += 1
        self.probability *= weight
        return answer


def outcomes(run: Callable[[Chance], T]) -> Iterator[tuple[float, T]]:
    """Every result of `run` with its probability; `run` must be a pure function of the answers it gets."""
    script: list[_Fork] = []
    while True:
        chance = Chance(script)
        result = run(chance)
        yield chance.probability, result
        while script and script[-1].at + 1 == len(script[-1].answers):
            script.pop()
        if not script:
            return
        script[-1].at += 1


@dataclass(slots=True)
class BranchingCoins:
    """The verifier's coins. Asking the same flip twice, or drawing twice at one depth, is a fault and raises."""

    chance: Chance
    seen: set[tuple[str, int]] = field(default_factory=set)

    def flip(self, probability: float, ordinal: int) -> bool:
        """False and True, each with its probability."""
        self._once("flip", ordinal)
        assert probability == probability, "the probability of a flip is NaN"
        sure = min(1.0, max(0.0, probability))
        return bool(self.chance.choose([1 - sure, sure]))

    def draw(self, distribution: Tensor, depth: int) -> int:
        """Every index of `distribution` [V] with its share."""
        self._once("draw", depth)
        return self.chance.choose((distribution / distribution.sum()).tolist())

    def _once(self, question: str, which: int) -> None:
        assert (question, which) not in self.seen, f"{question} {which} was asked twice in one round"
        self.seen.add((question, which))


@dataclass(slots=True)
class BranchingDraftCoins:
    """The drafter's coins: every ordered draw without replacement."""

    chance: Chance

    def draw(self, distribution: Tensor, depth: int, ordinal: int, count: int = 1) -> list[int]:
        """`count` indices of `distribution` [V]; fewer if the distribution has fewer."""
        left, drawn = distribution.clone(), list[int]()
        while len(drawn) < count and float(left.sum()) > 0:
            drawn.append(self.chance.choose((left / left.sum()).tolist()))
            left[drawn[-1]] = 0
        return drawn

    def in_round(self, position: int) -> "BranchingDraftCoins":
        """Every draw is independent of all others already."""
        return self


@dataclass(frozen=True, slots=True)
class Round:
    """One outcome of one round."""

    draft: Draft
    verdict: Verdict

    @property
    def emitted(self) -> list[int]:
        """Accepted tokens and the extra one."""
        return [*self.draft.tokens[list(self.verdict.path)].tolist(), self.verdict.token]


@dataclass(frozen=True, slots=True)
class _Scored:
    """A draft, its scores, and the answers of chance that it came from: most replays change the verifier's alone."""

    answers: list[int]
    probability: float
    draft: Draft
    packed: PackedDrafts
    p: Tensor  # [M, V]


def rounds(
    verifier: Verifier,
    target: Distribution,
    propose: DraftFunction,
    context: Seq[int],
    *,
    temperature: float = 1.0,
    coupled: bool = False,
) -> Iterator[tuple[float, Round]]:
    """Every outcome of one round after `context` (pending token last), with its probability."""
    seq = one_sequence(context, temperature=temperature, coupled=coupled)
    last: _Scored | None = None

    def run(chance: Chance) -> Round:
        nonlocal last
        if last is None or [fork.at for fork in chance.script[: len(last.answers)]] != last.answers:
            draft = propose(context, BranchingDraftCoins(chance))
            answers = [fork.at for fork in chance.script[: chance.asked]]
            last = _Scored(answers, chance.probability, draft, *score(target, [seq], [draft]))
        chance.asked, chance.probability = len(last.answers), last.probability
        (verdict,) = verifier(last.packed, last.p.clone(), [BranchingCoins(chance)])
        return Round(last.draft, verdict)

    return outcomes(run)


def exact_distribution(
    verifier: Verifier,
    target: Distribution,
    propose: DraftFunction,
    context: Seq[int],
    horizon: int,
    *,
    coupled: bool = False,
) -> Tensor:
    """The distribution of the next `horizon` tokens, [V] * horizon: one round of the rule, then plain decoding."""
    prefixes: dict[tuple[int, ...], float] = {}
    for probability, outcome in rounds(verifier, target, propose, context, coupled=coupled):
        prefix = tuple(outcome.emitted[:horizon])
        prefixes[prefix] = prefixes.get(prefix, 0.0) + probability
    return _completed(target, context, prefixes, horizon)


def target_distribution(target: Distribution, context: Seq[int], horizon: int) -> Tensor:
    """The distribution of the next `horizon` tokens of plain decoding, [V] * horizon."""
    return _completed(target, context, {(): 1.0}, horizon)


def _completed(target: Distribution, context: Seq[int], prefixes: dict[tuple[int, ...], float], horizon: int) -> Tensor:
    """Continue every short prefix by the target's distribution."""
    vocab_size = target(context).shape[0]
    distribution = torch.zeros([vocab_size] * horizon, dtype=torch.float64)
    while prefixes:
        longer: dict[tuple[int, ...], float] = {}
        for prefix, mass in prefixes.items():
            if len(prefix) == horizon:
                distribution[prefix] += mass
                continue
            for token, share in enumerate(target([*context, *prefix]).tolist()):
                if share > 0:
                    longer[(*prefix, token)] = longer.get((*prefix, token), 0.0) + mass * share
        prefixes = longer
    return distribution


def total_variation(a: Tensor, b: Tensor) -> float:
    """Half the absolute difference, summed: 0 for equal distributions, 1 for disjoint ones."""
    return float((a - b).abs().sum()) / 2


def expected_accepted(verifier: Verifier, target: Distribution, propose: DraftFunction, context: Seq[int]) -> float:
    """Mean length of the accepted path of one round."""
    return sum(mass * len(outcome.verdict.path) for mass, outcome in rounds(verifier, target, propose, context))
