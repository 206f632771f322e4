"""Muon for the matrices, AdamW for the rest, on float32 masters of bfloat16 weights.

Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon/): the momentum of a matrix is replaced by a nearly
orthogonal matrix of the same row and column space, so that all directions are learned at one speed; the step is scaled
by 0.2 sqrt(max side), as large as AdamW's (Liu et al. 2025, https://arxiv.org/abs/2502.16982). Embeddings, heads and
vectors take AdamW. The masters are what is trained; the model holds their rounded copies.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.training.config import LoopConfig
from outdraft.training.team import Team

_BETA1, _BETA2, _EPS, _MOMENTUM = 0.9, 0.95, 1e-8, 0.95
_TABLES = ("embedding", "lm_head")


def orthogonalise(matrix: Tensor) -> Tensor:
    """The nearest orthogonal matrix, roughly: five quintic Newton-Schulz steps in bfloat16 (singular values near 1)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.bfloat16() / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.t().contiguous() if tall else x
    for _ in range(5):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    out: Tensor = (x.t() if tall else x).float()
    return out


class Optimizer:
    """One step for a list of named parameters, given their float32 gradients."""

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], config: LoopConfig, team: Team | None = None) -> None:
        self.team = team or Team()
        pairs = list(named)
        self.names = [name for name, _ in pairs]
        self.parameters = [parameter for _, parameter in pairs]
        self.config = config
        self.masters = [p.detach().float().clone() for p in self.parameters]
        self.first = [torch.zeros_like(m) for m in self.masters]  # Muon's momentum, or AdamW's first moment
        self.muon = [
            config.muon_lr > 0 and m.dim() == 2 and not any(t in name for t in _TABLES)
            for name, m in zip(self.names, self.masters, strict=True)
        ]
        self.second = [None if use else torch.zeros_like(m) for use, m in zip(self.muon, self.masters, strict=True)]
        self.count = 0

    @torch.no_grad()
    def step(self, grads: list[Tensor], factor: float) -> None:
        """One update; `factor` in 0..1 is the schedule's share of the peak rates."""
        self.count += 1
        directions = self._directions(grads)
        for i, grad in enumerate(grads):
            master, first, second = self.masters[i], self.first[i], self.second[i]
            if second is None:
                update = directions[i]
                rate = self.config.muon_lr * factor
            else:
                first.lerp_(grad, 1 - _BETA1)
                second.lerp_(grad.square(), 1 - _BETA2)
                spread = (second / (1 - _BETA2**self.count)).sqrt_().add_(_EPS)
                update = first / (1 - _BETA1**self.count) / spread
                rate = self.config.lr * factor
            if master.dim() > 1:
                master.mul_(1 - rate * self.config.weight_decay)
            master.add_(update, alpha=-rate)
            self.parameters[i].copy_(master)

    def _directions(self, grads: list[Tensor]) -> dict[int, Tensor]:
        """Muon's updates of its matrices; each worker computes a share of them, and their sum is everyone's."""
        mine = {i: torch.zeros_like(self.masters[i]) for i, use in enumerate(self.muon) if use}
        load = [0] * self.team.size
        for i in sorted(mine, key=lambda i: -self.masters[i].numel()):
            self.first[i].lerp_(grads[i], 1 - _MOMENTUM)
            owner = load.index(min(load))
            load[owner] += mine[i].numel()
            if owner == self.team.rank:
                scale = 0.2 * max(mine[i].shape) ** 0.5
                mine[i] = orthogonalise(grads[i].lerp(self.first[i], _MOMENTUM)).mul_(scale)
        if self.team.size == 1 or not mine:
            return mine
        flat = self.team.add_up(torch.cat([x.flatten() for x in mine.values()]))
        parts = torch.split(flat, [x.numel() for x in mine.values()])
        return {i: part.view_as(x) for (i, x), part in zip(mine.items(), parts, strict=True)}

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs."""
        return {
            "names": self.names,
            "masters": self.masters,
            "first": self.first,
            "second": self.second,
            "count": self.count,
        }

    @torch.no_grad()
    def load_state(self, state: dict[str, Any]) -> None:
        """Take over a saved state, and set the model's weights from its masters."""
        if state["names"] != self.names:
            raise ValueError("the checkpoint is of another model; start without --resume")
        self.masters, self.first, self.second = state["masters"], state["first"], state["second"]
        self.count = state["count"]
        for parameter, master in zip(self.parameters, self.masters, strict=True):
            parameter.copy_(master)
