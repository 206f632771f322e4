"""Attention over rows of packed documents, with gradients: what training sees of a text.

    row 0    a a a a b b b c        each row of T tokens holds whole documents, or parts of some;
    row 1    d d e e e e e e        a token sees its own document up to itself

On a CPU the forward is torch's flash kernel and the backward five matrix products: torch's own CPU backward runs at a
few per cent of the matrix unit; recomputing the probabilities from the saved log-sum-exp takes half the time. Same
mathematics as FlashAttention (Dao et al. 2022, https://arxiv.org/abs/2205.14135), without its tiling: T x T scores are
held for one layer at a time. Each document is computed by itself there, on other devices all rows at once.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.nn.scores import attention


class _Attention(torch.autograd.Function):
    """softmax(q k^T scale + bias) v for q, k, v [B, H, T, d] and bias [B or 1, 1, T, T] (None: causal)."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        mask = None if bias is None else bias.to(q.dtype)
        out, lse = flash(q, k, v, 0.0, bias is None, attn_mask=mask, scale=scale)  # [B, H, T, d], [B, H, T]
        ctx.save_for_backward(q, k, v, out, lse, bias)
        ctx.scale = scale
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        (grad,) = grads
        q, k, v, out, lse, bias = ctx.saved_tensors
        if bias is None:
            bias = torch.full((q.shape[2], q.shape[2]), float("-inf"), device=q.device).triu(1)  # [T, T]
        scores = torch.matmul(q, k.transpose(-1, -2))
        p = (scores.float() * ctx.scale + bias - lse[..., None]).exp().to(q.dtype)  # [B, H, T, T]
        dv = torch.matmul(p.transpose(-1, -2), grad)
        dp = torch.matmul(grad, v.transpose(-1, -2))
        mean = (grad.float() * out.float()).sum(-1, keepdim=True)  # [B, H, T, 1]
        ds = (p.float() * (dp.float() - mean) * ctx.scale).to(q.dtype)
        return torch.matmul(ds, k), torch.matmul(ds.transpose(-1, -2), q), dv, None, None


def sees(documents: Tensor, window: int | None = None) -> Tensor:
    """Which row sees which: documents [B, T] -> [B, 1, T, T] bool."""
    place = torch.arange(documents.shape[1], device=documents.device)
    back = place[:, None] - place[None, :]
    near = (back >= 0) & (back < window) if window is not None else back >= 0
    return (near & (documents[:, :, None] == documents[:, None, :]))[:, None]


def document_sizes(documents: Tensor) -> list[int]:
    """[B, T] -> the rows of each document, in order; one that goes on in the next sequence is another there."""
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    first = begins.flatten().nonzero()[:, 0]
    return first.diff(append=first.new_tensor([documents.numel()])).tolist()  # type: ignore[no-any-return]


class PackedContext:
    """`batch` sequences of `length` rows, batch-major. `documents` [B, T]: whose each row is; None: one a sequence."""

    def __init__(self, batch: int, length: int, documents: Tensor | None = None) -> None:
        self.batch = batch
        self.length = length
        self.bulk = ((0, batch * length),)
        self._documents = documents
        self._sizes = [] if documents is None or documents.device.type != "cpu" else document_sizes(documents)
        self._biases: dict[tuple[int, int] | int | None, Tensor] = {}

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d] -> [N, H * d]."""
        group = q.shape[1] // k.shape[1]
        shape, kind = (self.batch, self.length, -1, q.shape[-1]), q.device.type
        if torch.is_autocast_enabled(kind):  # rotation has made wide numbers of them
            q, k, v = (x.to(torch.get_autocast_dtype(kind)) for x in (q, k, v))
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if self._sizes and cap is None:
            return self._each(q, k, v, window, scale)
        q, k, v = (x.reshape(shape).transpose(1, 2) for x in (q, k, v))  # [B, H, T, d]
        bias = self._bias(window if window is not None and window < self.length else None, q.device)
        if cap is not None:
            out = attention(q, k, v, mask=bias, is_causal=bias is None, scale=scale, cap=cap)
        elif kind == "cpu":
            out = _Attention.apply(q.contiguous(), k.contiguous(), v.contiguous(), bias, scale)  # type: ignore[no-untyped-call]
        else:
            mask = None if bias is None else bias.to(q.dtype)
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=bias is None, scale=scale)
        return out.transpose(1, 2).flatten(2).flatten(0, 1)

    def spans(self) -> None:
        """There is no cache to run over."""

    def _each(self, q: Tensor, k: Tensor, v: Tensor, window: int | None, scale: float) -> Tensor:
        """Document by document: q, k and v [N, H, d] -> [N, H * d]."""
        found = []
        for parts in zip(*(torch.split(x, self._sizes) for x in (q, k, v)), strict=True):  # type: ignore[no-untyped-call]
            own = [x.transpose(0, 1)[None].contiguous() for x in parts]  # [1, H, n, d]
            out = _Attention.apply(*own, self._near(len(parts[0]), window), scale)  # type: ignore[no-untyped-call]
            found.append(out[0].transpose(0, 1))
        return torch.cat(found).flatten(1)

    def _near(self, length: int, window: int | None) -> Tensor | None:
        """Of a document: 0 where a row sees another, -inf elsewhere [1, 1, n, n]; None: plainly causal."""
        if window is None or window >= length:
            return None
        if (length, window) not in self._biases:
            hidden = ~sees(torch.zeros(1, length, dtype=torch.long), window)
            self._biases[length, window] = torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
        return self._biases[length, window]

    def _bias(self, window: int | None, device: torch.device) -> Tensor | None:
        """0 where a row sees another, -inf elsewhere: [B or 1, 1, T, T]; None: plainly causal."""
        if self._documents is None and window is None:
            return None
        if window not in self._biases:
            documents = self._documents
            if documents is None:
                documents = torch.zeros(1, self.length, dtype=torch.long, device=device)
            hidden = ~sees(documents, window)
            self._biases[window] = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, float("-inf"))
        return self._biases[window]
