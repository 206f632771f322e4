"""Muon (`muon.py`) for the matrices and PyTorch's AdamW for the rest, as one optimiser, with one schedule.

Muon replaces the momentum of a matrix by a nearly orthogonal matrix of the same row and column space, so that all
directions are learned at one speed. Tables, output heads and vectors take AdamW: a matrix is a table or a head if one
of its sides is as long as the vocabulary, or if its name says so (`TABLES`). Moments are float32, as the parameters
are; what computes in bfloat16 does so under autocast.
"""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from outdraft.learn.muon import Muon

TABLES = {  # parts of names, in every network of ours
    "embedding",
    "positions",
    "mask",
    "places",
    "lm_head",
    "projections",
    "predecessor_codebook",
    "successor_codebook",
    "slot_bias",
    "feature_weight",
}


class Optimizer:
    """One step for parameters that have their gradients. `named`: each with its name in the module.

    `lr`: the peak rate of AdamW; `muon_lr`: of Muon, 0: AdamW for everything; `shares`: parameters that learn at a
    share of these.
    """

    def __init__(
        self,
        named: Iterable[tuple[str, nn.Parameter]],
        *,
        lr: float,
        muon_lr: float,
        weight_decay: float,
        vocab_size: int = 0,
        shares: Mapping[nn.Parameter, float] | None = None,
    ) -> None:
        given = list(named)
        self.parameters = [p for _, p in given]
        matrices = [
            p
            for name, p in given
            if muon_lr > 0 and p.dim() == 2 and vocab_size not in p.shape and TABLES.isdisjoint(name.split("."))
        ]
        taken = {id(p) for p in matrices}
        rest = [p for p in self.parameters if id(p) not in taken]
        self._parts: list[tuple[torch.optim.Optimizer, float]] = []
        if matrices:
            alike = _alike([{"params": matrices}], shares)
            self._parts.append((Muon(alike, lr=muon_lr, weight_decay=weight_decay), muon_lr))
        if rest:
            groups = [
                {"params": [p for p in rest if p.dim() > 1], "weight_decay": weight_decay},
                {"params": [p for p in rest if p.dim() <= 1], "weight_decay": 0.0},
            ]
            adam = torch.optim.AdamW(_alike(groups, shares), lr=lr, betas=(0.9, 0.95), fused=True)
            self._parts.append((adam, lr))

    def update(self, factor: float, clip: float) -> bool:
        """One step with gradients of this norm at most. False: a gradient is no finite number, and nothing changed."""
        norm = whole(nn.utils.clip_grad_norm_(self.parameters, clip))
        is_sound = isfinite(float(norm))
        if is_sound:
            self.step(factor)
        return is_sound

    def step(self, factor: float) -> None:
        """One update; `factor` in 0..1 is the schedule's share of the peak rates."""
        for part, rate in self._parts:
            for group in part.param_groups:
                group["lr"] = rate * factor * group.get("share", 1.0)
            part.step()

    def clear(self) -> None:
        """Drop all gradients, so that their memory is free until the next pass."""
        for part, _ in self._parts:
            part.zero_grad(set_to_none=True)

    def state(self) -> list[dict[str, Any]]:
        """Everything that a resumed run needs."""
        return [part.state_dict() for part, _ in self._parts]

    def load_state(self, state: list[dict[str, Any]]) -> None:
        """Take over a saved state."""
        for (part, _), saved in zip(self._parts, state, strict=True):
            part.load_state_dict(saved)


def whole(value: Tensor) -> Tensor:
    """A tensor from all parts that workers hold of it; every worker must ask."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def _alike(groups: list[dict[str, Any]], shares: Mapping[nn.Parameter, float] | None) -> list[dict[str, Any]]:
    """The groups that are not empty, cut into parts of one share of the rate; whole ones say nothing of it."""
    found: dict[tuple[int, float], dict[str, Any]] = {}
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            share = (shares or {}).get(parameter, 1.0)
            told = {**group, "params": []} if share == 1.0 else {**group, "params": [], "share": share}
            found.setdefault((number, share), told)["params"].append(parameter)
    return list(found.values())
