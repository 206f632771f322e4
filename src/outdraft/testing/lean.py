"""Does text lean towards what was guessed? The test that sees soonest what lossy rules do, round by round.

    h(x)   1 where the guess begins with x; q(x), for a guess that was drawn from q
    z      sum of h(x) - E_p h over rounds with a guess, by its standard deviation under p

A guess without q, and q itself, depend on the text before the round alone, so an exact rule leaves h(x) its mean under
the target's p, whatever was accepted: z is standard normal for many rounds. h lies in 0 .. 1, so a shift of its mean is
at most the total variation. `Watch` stands in the rule's place and sees each round
as the rule does, with the target's p. Data in: passes and verdicts; data out: a `Lean`.
"""

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from statistics import NormalDist

from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.packing import PackedDrafts
from outdraft.core.request import Request
from outdraft.core.verdict import Verdict
from outdraft.core.verifier import Verifier

LEAST = 5.0  # variance of the sum from which on it is taken for normal


@dataclass(slots=True)
class Lean:
    """What was seen of rounds with a guess."""

    num_rounds: int = 0
    off: float = 0.0  # sum of h(x) - E_p h
    variance: float = 0.0

    @property
    def p_value(self) -> float:
        """How often exact text leans at least as much; 1 while too little was seen."""
        return 1.0 if self.variance < LEAST else math.erfc(abs(self.off) / math.sqrt(2 * self.variance))

    def smallest_shift(self, *, alpha: float, power: float) -> float:
        """The mean shift of h, hence a total variation, that would be found."""
        if self.variance < LEAST:
            return 1.0
        normal = NormalDist()
        reach = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)
        return min(1.0, reach * math.sqrt(self.variance) / self.num_rounds)


class Watch:
    """A rule, watched: its verdicts are its own."""

    def __init__(self, rule: Verifier) -> None:
        self.rule, self.lossless, self.lean = rule, rule.lossless, Lean()

    def couples(self, request: Request) -> bool:
        return self.rule.couples(request)

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """Count the first token of each sampled round with a guess."""
        verdicts = self.rule(packed, p, coins)
        judged = [i for i, draft in enumerate(packed.drafts) if draft is not None]
        for i, verdict in zip(judged, verdicts, strict=True):
            tree = packed.trees[i]
            assert tree is not None
            if tree.children[0] and not packed.seqs[i].is_greedy:
                token = tree.tokens[verdict.path[0]] if verdict.path else verdict.token
                self._count(packed, i, p[packed.node_starts[i]].double(), token)
        return verdicts

    def _count(self, packed: PackedDrafts, i: int, p: Tensor, token: int) -> None:
        draft, tree = packed.drafts[i], packed.trees[i]
        assert draft is not None and tree is not None
        children = tree.children[0]
        if draft.q is None:
            guessed = {tree.tokens[child] for child in children}
            mean = second = float(p[sorted(guessed)].sum())
            own = float(token in guessed)
        else:
            q = draft.q[0 if draft.drawn_from is None else int(draft.drawn_from[children[0]])].to(p)
            mean, second, own = float(p @ q), float(p @ (q * q)), float(q[token])
        self.lean.num_rounds += 1
        self.lean.off += own - mean
        self.lean.variance += max(0.0, second - mean * mean)
