"""Where acceptance changed over time, if it did: a generalized likelihood ratio over blocks of rounds.

    shortfall of block b   D_b = sum over positions i of (r_i * reached_bi - accepted_bi)     r: the reference rates
    of a split at k        z_k = (mean shortfall behind k - mean before k) / its standard error
    the change             the split with the largest z_k: acceptance fell there, if anywhere

Positions are compared with themselves, so a policy that guesses deeper is no change. Rounds of one text resemble each
other; so the standard error is widened by the dispersion, the variance of blocks around the two means over that of
independent rounds. For independent rounds that never change, the largest z of up to 128 blocks exceeds 4 in less than
one case of 1,000, and in less than one of 100 where the dispersion is 3 (tests/adapt/test_diagnose.py).

The statistic is that of D. Siegmund, "Boundary crossing probabilities and statistical applications", The Annals of
Statistics 14 (1986), https://doi.org/10.1214/aos/1176349928.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from itertools import accumulate
from math import sqrt

from outdraft.adapt.examined import Examined

_LEAST = 2  # blocks on either side


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The likeliest fall of acceptance; whether there was one is for the reader of `z` to say."""

    at: int  # rounds before it
    before: float  # shortfall of an examined guess, against the reference rates
    after: float
    standard_error: float  # of after - before
    dispersion: float  # at least 1

    @property
    def z(self) -> float:
        """The fall in standard errors."""
        return (self.after - self.before) / self.standard_error


def variance(accepted: float, reached: float) -> float:
    """Of one guess's acceptance, never 0: half a guess is added to either side."""
    p = (accepted + 0.5) / (reached + 1)
    return p * (1 - p)


def find_change(blocks: Seq[Examined], rates: Seq[float]) -> Change | None:
    """The split where acceptance fell most, in standard errors; None for fewer than four blocks.

    `rates`: the reference by position; positions behind its end are left out.
    """
    if len(blocks) < 2 * _LEAST:
        return None
    whole = Examined.total(blocks)
    variances = [variance(a, n) for a, n in zip(whole.accepted, whole.reached, strict=True)]
    guesses = [sum(one.reached[: len(rates)]) for one in blocks]
    short = [sum(r * n - a for r, n, a in zip(rates, one.reached, one.accepted, strict=False)) for one in blocks]
    noise = [sum(v * n for v, n, _ in zip(variances, one.reached, rates, strict=False)) for one in blocks]
    sums = list(zip(*map(accumulate, (guesses, short, noise)), strict=True))
    best = max((_split(sums, k) for k in range(_LEAST, len(blocks) - _LEAST + 1)), key=lambda one: one.z)
    means = [best.before] * best.at + [best.after] * (len(blocks) - best.at)
    far = sum((d - mean * n) ** 2 / v for d, mean, n, v in zip(short, means, guesses, noise, strict=True))
    dispersion = max(1.0, far / (len(blocks) - 2))
    rounds = int(sum(one.rounds for one in blocks[: best.at]))
    return replace(best, at=rounds, standard_error=best.standard_error * sqrt(dispersion), dispersion=dispersion)


def _split(sums: Seq[tuple[float, ...]], k: int) -> Change:
    """k blocks before it. `sums`: of guesses, shortfalls and their variances, up to and with each block."""
    (n, d, v), (all_n, all_d, all_v) = sums[k - 1], sums[-1]
    return Change(
        at=k,
        before=d / n,
        after=(all_d - d) / (all_n - n),
        standard_error=sqrt(v / n**2 + (all_v - v) / (all_n - n) ** 2),
        dispersion=1.0,
    )
