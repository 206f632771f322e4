"""Slots: several vectors computed from one state that attend to each other; heads that guess together read them.

    g --+-- x + silu(W x + b) --(+ slot 0)--+                         +-- slot 0
        +-- ...               --(+ slot 1)--+-- one attention block --+-- slot 1
        +-- ...               --(+ slot 2)--+    over the K slots     +-- slot 2

Li et al., "Amphista: bi-directional multi-head decoding for accelerating LLM inference", 2024,
https://arxiv.org/abs/2406.13170 (its auto-embedding block). Untrained every slot is the state itself. Data: [N, D] ->
[N, K, D].
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.drafters.shared.heads.residual import residuals
from outdraft.drafters.shared.heads.stem import StemConfig, begin_block, shape_of
from outdraft.models.networks.block import Block
from outdraft.nn.linear import RowRange


class SlotContext:
    """Attention among the `count` slots of each state: rows N * K, state-major. `alone`: a slot sees itself only."""

    def __init__(self, count: int, *, alone: bool, exact: bool) -> None:
        self.bulk: tuple[RowRange, ...] = ()
        self._count, self._alone, self._exact = count, alone, exact

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [N * K, H, d], k and v [N * K, Hkv, d] -> [N * K, H * d]; `cap` and `window` are not for slots."""
        heads, width = q.shape[1:]
        group = heads // k.shape[1]
        if self._alone:
            return v.repeat_interleave(group, 1).flatten(1)
        q, k, v = (x.reshape(-1, self._count, x.shape[1], width).transpose(1, 2) for x in (q, k.to(q), v.to(q)))
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)  # [N, H, K, d]
        if self._exact:  # each state by itself: no bits depend on the states beside it
            parts = [F.scaled_dot_product_attention(q[i : i + 1], k[i : i + 1], v[i : i + 1], scale=scale)
                     for i in range(len(q))]  # fmt: skip
            out = torch.cat(parts)
        else:
            out = F.scaled_dot_product_attention(q, k, v, scale=scale)
        return out.transpose(1, 2).reshape(-1, heads * width)

    def spans(self) -> None:
        """There is no cache to run over."""


class Slots(nn.Module):
    """`count` slots of a state. `bidirectional`: they see each other; else each sees itself alone, with as many
    parameters."""

    def __init__(
        self, config: StemConfig, count: int, dtype: torch.dtype, device: torch.device, *, bidirectional: bool
    ) -> None:
        super().__init__()
        width = config.hidden_size
        self.exact = False  # True: no state's bits depend on the states beside it (inference)
        self._alone = not bidirectional
        self.layers = nn.ModuleList(residuals(1, width, dtype, device) for _ in range(count))
        self.places = nn.Parameter(torch.full((count, width), float("nan"), dtype=dtype, device=device))
        self.block = Block(shape_of(config), 0, dtype, device)

    def forward(self, g: Tensor) -> Tensor:
        """[N, D] -> [N, K, D]."""
        g = g.to(self.places.dtype)
        count = len(self.layers)
        slots = torch.stack([layer(g) for layer in self.layers], 1) + self.places  # [N, K, D]
        context = SlotContext(count, alone=self._alone, exact=self.exact)
        out: Tensor = self.block(slots.flatten(0, 1), None, context, self.exact)[0]
        return out.view(len(g), count, -1)


@torch.no_grad()
def begin_slots(slots: Slots, seed: int) -> None:
    """In place: every slot is the state itself."""
    for parameter in slots.parameters():
        parameter.zero_()
    begin_block(slots.block, torch.Generator().manual_seed(seed))
