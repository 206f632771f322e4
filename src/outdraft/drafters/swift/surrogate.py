"""A Gaussian process over skip sets: which of some sets promises most, given the scores of others.

Kernel exp(-differing sublayers / length), a constant mean, noise; the set of largest mean + 2.5 sigma is advised (upper
confidence bound; Srinivas et al. 2010, https://arxiv.org/abs/0912.3995). Data in: sets as booleans with their scores,
and candidates; data out: the number of one candidate.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

_KAPPA = 2.5
_NOISE = 0.05  # of a score, in units of the scores' spread
_MEMORY = 400  # the latest scores are looked at: a solve costs their number cubed


def advise(tried: Seq[tuple[list[bool], float]], candidates: Seq[list[bool]]) -> int:
    """Which candidate has the largest upper confidence bound."""
    known = tried[-_MEMORY:]
    x = torch.tensor([sublayers for sublayers, _ in known], dtype=torch.float64)  # [n, S]
    y = torch.tensor([score for _, score in known], dtype=torch.float64)  # [n]
    new = torch.tensor(candidates, dtype=torch.float64)  # [m, S]
    length = x.shape[1] / 4
    spread = y.std(correction=0).clamp(min=1e-6)
    solver = torch.linalg.cholesky(_kernel(x, x, length) + _NOISE * torch.eye(len(known), dtype=torch.float64))
    cross = _kernel(new, x, length)  # [m, n]
    mean = cross @ torch.cholesky_solve(((y - y.mean()) / spread)[:, None], solver)[:, 0]
    variance = 1 - (cross * torch.cholesky_solve(cross.T, solver).T).sum(-1)
    bound = mean + _KAPPA * variance.clamp(min=0).sqrt()
    return int(bound.argmax())


def _kernel(a: Tensor, b: Tensor, length: float) -> Tensor:
    """[n, S], [m, S] of zeros and ones -> [n, m]."""
    return torch.exp(-torch.cdist(a, b, p=1) / length)
