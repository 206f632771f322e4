"""Whether counted tokens are drawn from the target's distributions.

If they are, the counts of each context are multinomial: chi-square, and total variation against its noise. In: counts
by context, and the distributions; out: `SampledDistribution`, whose `passes` is the verdict.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MIN_EXPECTED = 5.0  # cells that expect fewer counts are pooled: chi-square needs them large


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDistribution:
    """How far the counts are from the target's distribution, and how far noise alone would take them."""

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
    """counts [C, V] against distributions [C, V]."""
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
    upper = torch.special.gammaincc(torch.tensor(degrees / 2).double(), torch.tensor(chi_square / 2).double())
    return SampledDistribution(
        num_tokens=int(visits.sum()),
        num_rounds=num_rounds,
        chi_square=chi_square,
        degrees=degrees,
        p_value=float(upper),
        tv=float((weights * (shares - distributions).abs().sum(-1)).sum()) / 2,
        tv_bound=float(mean + 4 * deviation),
        impossible=int(counts[distributions == 0].sum()),
    )
