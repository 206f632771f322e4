"""What attention looks back on. A layer hands over its new queries, keys and values; the context knows the past.

`CausalContext`: whole sequences at once, no cache, differentiable (training, full recompute).
"""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class AttentionContext(Protocol):
    """Attention of one pass's flat rows."""

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float
    ) -> Tensor:  # fmt: skip
        """q [N, H, d], k and v [N, Hkv, d], rotary applied -> [N, H * d]. A row sees `window` keys, itself included."""
        ...


class CausalContext:
    """`batch` sequences of `length` rows each, batch-major; every row sees its own sequence up to itself."""

    def __init__(self, batch: int, length: int) -> None:
        self.batch = batch
        self.length = length
        self._masks: dict[int, Tensor] = {}  # window -> [T, T]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float) -> Tensor:
        """One causal attention over the batch."""
        q, k, v = (x.unflatten(0, (self.batch, self.length)).transpose(1, 2) for x in (q, k, v))  # [B, H, T, d]
        gqa = q.shape[1] != k.shape[1]
        if window is None or window >= self.length:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=gqa)
        else:
            mask = self._window_mask(window, q.device)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=gqa)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)  # [B * T, H * d]

    def _window_mask(self, window: int, device: torch.device) -> Tensor:
        if window not in self._masks:
            row = torch.arange(self.length, device=device)
            back = row[:, None] - row[None, :]
            self._masks[window] = (back >= 0) & (back < window)
        return self._masks[window]
