"""Are two samples from one distribution, or counts drawn from known ones? Chi-square, and what it would have noticed.

For two samples of n1 and n2 and bin shares that differ by d_i around the pooled share m_i, the statistic is (for large
samples) noncentral chi-square with noncentrality

    L = n1 n2 / (n1 + n2) * sum d_i^2 / m_i  >=  n1 n2 / (n1 + n2) * (2 TV)^2        (Cauchy and Schwarz)

so a shift of total variation TV, spread over the bins in whatever way, is found at least as surely as L says. Bins are
chosen from the pooled sample alone, which does not bend the null distribution. Cochran, "The chi-square test of
goodness of fit", 1952, https://doi.org/10.1214/aoms/1177729380. Data in: two lists of hashable outcomes, or counts and
distributions; data out: a `TwoSample`, or a `SampledDistribution`.
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from zlib import crc32

import torch
from torch import Tensor

MIN_POOLED = 20  # an outcome seen so often in both samples together has a bin of its own: 10 expected in each of two
MIN_EXPECTED = 5.0  # cells of known distributions that expect fewer counts are pooled: chi-square needs them large
MAX_OWN, MAX_SHARED = 40, 8  # bins of single outcomes; bins that rare outcomes are hashed into


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoSample:
    """One test. `p_value`: how often equal distributions differ at least as much."""

    sizes: tuple[int, int]
    chi_square: float
    degrees: int  # bins - 1; 0: everything fell into one bin, and there is nothing to compare
    p_value: float
    tv: float  # between the two samples, over the bins; noise included


def two_sample(first: Seq[Hashable], second: Seq[Hashable]) -> TwoSample:
    """Compare two samples of outcomes."""
    bins = make_bins(Counter(first) + Counter(second))
    counts = [[0] * (max(bins.values(), default=-1) + 1) for _ in range(2)]
    for row, sample in zip(counts, (first, second), strict=True):
        for outcome in sample:
            row[bins[outcome]] += 1
    n1, n2 = len(first), len(second)
    chi_square = distance = 0.0
    for a, b in zip(*counts, strict=True):
        chi_square += (a * math.sqrt(n2 / n1) - b * math.sqrt(n1 / n2)) ** 2 / (a + b)
        distance += abs(a / n1 - b / n2) / 2
    degrees = len(counts[0]) - 1
    p_value = chi_square_tail(chi_square, degrees) if degrees > 0 else 1.0
    return TwoSample(sizes=(n1, n2), chi_square=chi_square, degrees=degrees, p_value=p_value, tv=distance)


def make_bins(pooled: Counter[Hashable]) -> dict[Hashable, int]:
    """Outcome -> bin: frequent outcomes alone, rare ones hashed together, no bin with fewer than MIN_POOLED."""
    frequent = [outcome for outcome, n in pooled.most_common(MAX_OWN) if n >= MIN_POOLED]
    bins = {outcome: i for i, outcome in enumerate(frequent)}
    rare = [outcome for outcome in pooled if outcome not in bins]
    num_shared = min(MAX_SHARED, sum(pooled[outcome] for outcome in rare) // (2 * MIN_POOLED))
    while num_shared > 1 and min(_shared_sizes(rare, pooled, num_shared)) < MIN_POOLED:
        num_shared -= 1
    if (
        bins and sum(pooled[outcome] for outcome in rare) < MIN_POOLED
    ):  # too few for a bin: with the rarest frequent one
        return bins | {outcome: len(frequent) - 1 for outcome in rare}
    return bins | {outcome: len(frequent) + _hash(outcome) % max(1, num_shared) for outcome in rare}


def _shared_sizes(rare: Iterable[Hashable], pooled: Counter[Hashable], num_shared: int) -> list[int]:
    sizes = [0] * num_shared
    for outcome in rare:
        sizes[_hash(outcome) % num_shared] += pooled[outcome]
    return sizes


def _hash(outcome: Hashable) -> int:
    return crc32(repr(outcome).encode())  # the same in every process, unlike hash() of a string


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDistribution:
    """How far counts by context are from the target's distributions, and how far noise alone would take them."""

    num_tokens: int
    num_rounds: int  # = target passes
    chi_square: float
    degrees: int
    p_value: float
    tv: float  # mean over contexts, weighted by visits
    tv_bound: float  # mean of pure noise + 4 standard deviations
    impossible: int  # tokens emitted to which the target gives no mass

    @property
    def passes(self) -> bool:
        """Whether the texts can be the target's."""
        return not self.impossible and self.p_value > 1e-3 and self.tv < self.tv_bound


def judge_counts(counts: Tensor, distributions: Tensor, num_rounds: int) -> SampledDistribution:
    """Counts [C, V] by context against the distributions [C, V] from which they should have been drawn."""
    visits = counts.sum(-1)  # [C]
    chi_square, degrees = 0.0, 0
    for observed, distribution, n in zip(counts, distributions, visits.tolist(), strict=True):
        expected = n * distribution
        large = expected >= MIN_EXPECTED
        cells = [*zip(observed[large].tolist(), expected[large].tolist(), strict=True)]
        rest = float(expected[~large].sum())
        if rest >= MIN_EXPECTED:
            cells.append((float(observed[~large].sum()), rest))
        if len(cells) > 1:
            chi_square += sum((o - e) ** 2 / e for o, e in cells)
            degrees += len(cells) - 1
    weights = visits / visits.sum()
    spread = (distributions * (1 - distributions) / visits.clamp(min=1)[:, None]).sqrt()  # [C, V] of one cell's share
    mean = (weights[:, None] * spread).sum() * math.sqrt(2 / math.pi) / 2
    deviation = ((weights[:, None] * spread) ** 2).sum().sqrt() * math.sqrt(1 - 2 / math.pi) / 2
    shares = counts / visits.clamp(min=1)[:, None]
    return SampledDistribution(
        num_tokens=int(visits.sum()),
        num_rounds=num_rounds,
        chi_square=chi_square,
        degrees=degrees,
        p_value=chi_square_tail(chi_square, degrees),
        tv=float((weights * (shares - distributions).abs().sum(-1)).sum()) / 2,
        tv_bound=float(mean + 4 * deviation),
        impossible=int(counts[distributions == 0].sum()),
    )


def detectable_shift(sizes: tuple[int, int], degrees: int, *, alpha: float, power: float) -> float:
    """The total variation (over the bins) from which on a test at level `alpha` rejects with probability `power`."""
    edge = _solve(lambda x: chi_square_tail(x, degrees) < alpha)
    noncentrality = _solve(lambda x: noncentral_tail(edge, degrees, x) > power)
    n1, n2 = sizes
    return min(1.0, math.sqrt(noncentrality * (n1 + n2) / (4 * n1 * n2)))


def chi_square_tail(x: float, degrees: int) -> float:
    """P(chi-square with so many degrees of freedom > x)."""
    half = torch.tensor([degrees / 2, x / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def noncentral_tail(x: float, degrees: int, noncentrality: float) -> float:
    """P(noncentral chi-square > x): central ones with degrees + 2 J, where J is Poisson of noncentrality / 2."""
    mean = noncentrality / 2
    top = int(mean + 12 * math.sqrt(mean + 1) + 12)
    j = torch.arange(top, dtype=torch.float64)
    log_weights = j * math.log(mean) - mean - torch.lgamma(j + 1) if mean > 0 else torch.where(j == 0, 0.0, -torch.inf)
    tails = torch.special.gammaincc(degrees / 2 + j, torch.full_like(j, x / 2))
    return float((log_weights.exp() * tails).sum())


def _solve(above: Callable[[float], bool]) -> float:
    """The smallest x >= 0 with `above(x)`, which must be monotone."""
    low, high = 0.0, 1.0
    while not above(high):
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return high
