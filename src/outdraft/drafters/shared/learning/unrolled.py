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

from outdraft.nn.packed import document_sizes, sees

_Steps = list[Tensor]  # of a part, each step [..., H, n, d]


class UnrolledContext:
    """`documents` and `places` [B, T]: which document a row belongs to, and its index there.

    A CPU computes each document by itself; a GPU all rows at once, where a document does not see another.
    """

    def __init__(self, documents: Tensor, places: Tensor) -> None:
        self.bulk = ((0, documents.numel()),)
        self._shape, self._sizes = documents.shape, list[int]()  # of each document; none on a GPU
        self._parts = [(places[:, None], ~sees(documents))] if documents.device.type != "cpu" else []
        if not self._parts:
            self._sizes, none = document_sizes(documents), torch.zeros((), dtype=torch.bool)
            own = torch.split(places.flatten(), self._sizes)  # type: ignore[no-untyped-call]
            self._parts = [(part, none) for part in own]
        self._keys: dict[int, list[_Steps]] = {}  # of each layer
        self._values: dict[int, list[_Steps]] = {}

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d] of the next step -> [N, H * d]; no `cap`, no `window`."""
        group = q.shape[1] // k.shape[1]
        keys, values = (held.setdefault(layer, [[] for _ in self._parts]) for held in (self._keys, self._values))
        for held, new in ((keys, k), (values, v)):
            for steps, rows in zip(held, self._split(new.repeat_interleave(group, 1)), strict=True):
                steps.append(rows)
        asked = zip(self._split(q), keys, values, self._parts, strict=True)
        out = [_attend(one, k, v, *part, scale) for one, k, v, part in asked]
        return torch.cat([one.transpose(-3, -2).reshape(-1, q.shape[1] * q.shape[2]) for one in out])

    def spans(self) -> None:
        """Rows are asked for layer by layer."""

    def _split(self, x: Tensor) -> list[Tensor]:
        """[N, H, d] -> of each part [..., H, n, d]."""
        if not self._sizes:
            return [x.view(*self._shape, *x.shape[1:]).transpose(-3, -2)]
        parts = torch.split(x, self._sizes)  # type: ignore[no-untyped-call]
        return [part.transpose(-3, -2) for part in parts]


def _attend(q: Tensor, keys: _Steps, values: _Steps, places: Tensor, hidden: Tensor, scale: float) -> Tensor:
    """Of the latest step: q [..., H, n, d] -> the same. `hidden`: rows [..., n, n] that are of another document."""
    length, step = q.shape[-2], len(keys) - 1
    hidden = hidden | torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1 - step)
    scores = torch.matmul(q, keys[0].transpose(-1, -2)).float() * scale
    columns = [scores.masked_fill(hidden, float("-inf"))]
    for r in range(1, step + 1):
        score = (q.float() * _later(keys[r], step - r).float()).sum(-1, keepdim=True) * scale
        columns.append(score.masked_fill((places < step - r)[..., None], float("-inf")))
    weights = torch.cat(columns, -1).softmax(-1).to(values[0].dtype)  # [..., H, n, n + s]
    out = torch.matmul(weights[..., :length], values[0])
    for r in range(1, step + 1):
        out = out + weights[..., length + r - 1, None] * _later(values[r], step - r)
    return out


def _later(x: Tensor, by: int) -> Tensor:
    """Row i of the result is row i - by: x [..., n, d]; the first rows are zero."""
    return x if by == 0 else F.pad(x, (0, 0, by, 0))[..., : x.shape[-2], :]
