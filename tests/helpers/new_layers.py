"""Two layers that no shipped model has: what a stranger writes to add a recurrence, or experts."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from outdraft.models.networks.parts import PartPlace
from outdraft.nn.activation import rowwise
from outdraft.nn.fold import fold


@dataclass(frozen=True)
class Recurrence:
    """S' = g S + k v^T, o = q S' in place of attention: a gated linear recurrence of one head."""

    size: int = 6

    @property
    def state(self):
        return (self.size, self.size)

    def build(self, place: PartPlace):
        return RecurrentLayer(self, place)


class RecurrentLayer(nn.Module):
    def __init__(self, kind: Recurrence, place: PartPlace):
        super().__init__()
        self.index, self.kind = place.index, kind
        self.put = place.linear("put", place.width, 3 * kind.size + 1, False)
        self.get = place.linear("get", kind.size, place.width, False)

    def forward(self, x, rotation, ctx):
        return self.get(fold(ctx, self.index, self.step, [self.put(x, ctx.bulk)], self.kind.state), ctx.bulk)

    def step(self, state, row):
        q, k, v, g = row.split([self.kind.size] * 3 + [1])
        state = torch.sigmoid(g + 1) * state + k[:, None] * v
        return state, q @ state


@dataclass(frozen=True)
class Experts:
    """The `chosen` best of `count` small MLPs for each row, in place of one MLP."""

    count: int = 4
    chosen: int = 2
    inner: int = 16

    def build(self, place: PartPlace):
        return ExpertLayer(self, place)


class ExpertLayer(nn.Module):
    def __init__(self, kind: Experts, place: PartPlace):
        super().__init__()
        each = range(kind.count)
        self.chosen = kind.chosen
        self.router = place.linear("router", place.width, kind.count, False)
        self.ups = nn.ModuleList(place.linear(f"ups.{i}", place.width, kind.inner, False) for i in each)
        self.downs = nn.ModuleList(place.linear(f"downs.{i}", kind.inner, place.width, False) for i in each)

    def forward(self, x, bulk, exact):
        """Prompt chunks too go through the maps row by row: how many rows an expert has depends on the text."""
        best = self.router(x).sort(dim=-1, descending=True, stable=True)  # of equal scores the first expert wins
        shares = rowwise(lambda scores: scores.softmax(-1), best.values[:, : self.chosen])
        out = torch.zeros_like(x)
        for i, (up, down) in enumerate(zip(self.ups, self.downs, strict=True)):
            rows, rank = (best.indices[:, : self.chosen] == i).nonzero(as_tuple=True)
            if len(rows):
                out[rows] += shares[rows, rank, None] * down(rowwise(F.silu, up(x[rows])))
        return out
