"""Attention of a network that is trained on its own outputs, several steps deep, over packed documents.

    step 0   row i reads what the target gave          sees rows 0..i of step 0
    step s   row i reads its own output of step s - 1  sees rows 0..i - s of step 0, then one of each later step, up to
             at row i - 1                              row i itself

which is what row i sees when s guesses have been made since the target was last asked ("training-time test" of EAGLE-3,
Li et al. 2025, https://arxiv.org/abs/2503.01840; HASS, Zhang et al. 2024, https://arxiv.org/abs/2408.15766).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.nn.packed import sees


class UnrolledContext:
    """`documents` and `places` [B, T]: which document a row belongs to, and its index there."""

    def __init__(self, documents: Tensor, places: Tensor) -> None:
        self.batch, self.length = documents.shape
        self.bulk = ((0, documents.numel()),)
        self.keys: dict[int, list[Tensor]] = {}  # of each layer, of each step [B, H, T, d]
        self.values: dict[int, list[Tensor]] = {}
        self._sees, self._places = sees(documents), places[:, None]  # [B, 1, T, T], [B, 1, T]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d] of the next step -> [N, H * d]; no `cap`, no `window`."""
        group, width = q.shape[1] // k.shape[1], q.shape[-1]
        q, k, v = (x.reshape(self.batch, self.length, -1, width).transpose(1, 2) for x in (q, k, v))
        keys, values = self.keys.setdefault(layer, []), self.values.setdefault(layer, [])
        keys.append(k.repeat_interleave(group, 1))
        values.append(v.repeat_interleave(group, 1))
        step = len(keys) - 1
        row = torch.arange(self.length, device=q.device)
        seen = self._sees & (row[None, :] <= row[:, None] - step)  # [B, 1, T, T]
        scores = torch.matmul(q, keys[0].transpose(-1, -2)).float() * scale
        columns = [scores.masked_fill(~seen, float("-inf"))]
        for r in range(1, step + 1):
            score = (q.float() * _later(keys[r], step - r).float()).sum(-1, keepdim=True) * scale
            columns.append(score.masked_fill((self._places < step - r)[..., None], float("-inf")))
        weights = torch.cat(columns, -1).softmax(-1).to(values[0].dtype)  # [B, H, T, T + s]
        out = torch.matmul(weights[..., : self.length], values[0])
        for r in range(1, step + 1):
            out = out + weights[..., self.length + r - 1, None] * _later(values[r], step - r)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)

    def spans(self) -> None:
        """Rows are asked for layer by layer."""


def _later(x: Tensor, by: int) -> Tensor:
    """Row i of the result is row i - by: x [B, H, T, d]; the first rows are zero."""
    return x if by == 0 else F.pad(x, (0, 0, by, 0))[:, :, : x.shape[2]]
