"""The rounds that a draft would take through a text, from its acceptance at every position and depth.

Of a text that the target wrote, a token x guessed with q is kept with probability min(1, q(x) / p(x)), whatever else
was guessed there: that is what rejection sampling does, seen from the text. So the number of rounds in expectation is a
sum over the places where a round may begin, with nothing drawn:

    begins[a + 1 + n] += begins[a] * P(n accepted | a)          n = 0..k

Greedy, the ratio is 1 or 0, and the rounds are those that would be seen. Data in: ratios of depth d at the target's row
a + d - 1 (`compare.accepted`). Data out: tokens and rounds of each text, and acceptance by depth.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import sqrt

import torch
from torch import Tensor
from torch.nn.functional import pad


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Rounds through texts, by expectation or as they were seen in an engine."""

    tokens: tuple[float, ...]  # of each text: what its rounds emitted
    rounds: tuple[float, ...]
    reached: tuple[float, ...]  # of each depth: rounds in which its guess was looked at
    kept: tuple[float, ...]  # and accepted

    @property
    def tau(self) -> float:
        """Tokens a round, the target's own included: the acceptance length."""
        return sum(self.tokens) / max(sum(self.rounds), 1e-9)

    @property
    def standard_error(self) -> float:
        """Of `tau`, over texts; of a single text `tau` itself."""
        count, tau = len(self.tokens), self.tau
        if count < 2:  # unknown: as large as the number itself
            return tau
        far = sum((t - tau * r) ** 2 for t, r in zip(self.tokens, self.rounds, strict=True))
        return sqrt(far * count / max(1, count - 1)) / max(sum(self.rounds), 1e-9)

    @property
    def conditional(self) -> list[float]:
        """P(depth d accepted | looked at)."""
        return [kept / max(reached, 1e-9) for kept, reached in zip(self.kept, self.reached, strict=True)]

    @property
    def joint(self) -> list[float]:
        """P(all of the first d accepted)."""
        return [kept / max(sum(self.rounds), 1e-9) for kept in self.kept]

    def __add__(self, other: "Walk") -> "Walk":
        def add(a: Seq[float], b: Seq[float]) -> tuple[float, ...]:
            return tuple(x + y for x, y in zip(a, b, strict=True))

        return Walk(
            tokens=self.tokens + other.tokens,
            rounds=self.rounds + other.rounds,
            reached=add(self.reached, other.reached),
            kept=add(self.kept, other.kept),
        )


def walk(ratios: Tensor, counts: Tensor, guessed: Tensor | None = None) -> Walk:
    """`ratios` [K, B, T] at the target's rows; `counts` [B, T]: rows whose next token was to be written.

    `guessed` [K, B, T]: where there is a guess at all; everywhere by default.

    A round begins at the first row of each run of counted rows (the token before it stands already) and never goes over
    the end of the run.
    """
    depth, _, length = ratios.shape
    inside = pad(counts.bool(), (0, depth + 1))
    begins = (inside & ~pad(inside[:, :-1], (1, 0))).double()  # [B, T + K + 1] the probability that a round begins
    there = torch.ones_like(ratios) if guessed is None else guessed.double()
    ratios, there = (pad(one.double(), (0, depth + 1)) for one in (ratios, there))
    reached, kept = (torch.zeros(depth, dtype=torch.float64) for _ in range(2))
    rounds = torch.zeros(len(counts), dtype=torch.float64)
    for t in range(length):
        alive, run = begins[:, t] * inside[:, t], inside[:, t]  # [B]
        rounds += alive
        for d in range(depth):
            run = run & inside[:, t + d]
            on = alive * ratios[d, :, t + d] * run
            reached[d] += (alive * run * there[d, :, t + d]).sum()
            kept[d] += on.sum()
            begins[:, t + d + 1] += (alive - on) * run  # rejected here: the token is the target's own
            alive = on
        begins[:, t + depth + 1] += alive * (run & inside[:, t + depth])  # all accepted, and one more
    return Walk(
        tokens=tuple(counts.sum(1).double().tolist()),
        rounds=tuple(rounds.tolist()),
        reached=tuple(reached.tolist()),
        kept=tuple(kept.tolist()),
    )
