"""The attention of `UnrolledContext` by PyTorch's fused kernels: scores of T x T rows are never held.

    main    rows 0..i - s of step 0, by a fused kernel          out_0, lse_0
    own     one key of each later step, e_r = q k_r scale       lse = logaddexp(lse_0, e_1, ..., e_s)
    out     = exp(lse_0 - lse) out_0 + sum exp(e_r - lse) v_r

The kernel's backward needs of the softmax no more than its result and lse: given those of the whole, it finds the
gradients of its part ("Ring attention", Liu et al. 2023, https://arxiv.org/abs/2310.01889, splits keys so too).
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.nn.packed import sees

_HIDDEN = -30_000.0  # finite: a row that sees nothing of the main part has a result all the same


class FusedUnrolled:
    """`documents` and `places` [B, T]. `bfloat16` or float32 as the rows come."""

    def __init__(self, documents: Tensor, places: Tensor) -> None:
        self.batch, self.length = documents.shape
        self.bulk = ((0, documents.numel()),)
        self._keys: dict[int, list[Tensor]] = {}  # of each layer, of each step [B, H, T, d]
        self._values: dict[int, list[Tensor]] = {}
        self._sees, self._places = sees(documents), places[:, None]  # [B, 1, T, T], [B, 1, T]
        self._biases: dict[tuple[int, torch.dtype], Tensor] = {}

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float, cap: float | None = None
    ) -> Tensor:
        group, width = q.shape[1] // k.shape[1], q.shape[-1]
        if torch.is_autocast_enabled(q.device.type):
            q, k, v = (x.to(torch.get_autocast_dtype(q.device.type)) for x in (q, k, v))
        q, k, v = (x.reshape(self.batch, self.length, -1, width).transpose(1, 2) for x in (q, k, v))
        keys, values = self._keys.setdefault(layer, []), self._values.setdefault(layer, [])
        keys.append(k.repeat_interleave(group, 1))
        values.append(v.repeat_interleave(group, 1))
        step = len(keys) - 1
        out = _Attention.apply(q.contiguous(), self._bias(step, q), self._places, scale, *keys, *values)  # type: ignore[no-untyped-call]
        return out.transpose(1, 2).flatten(2).flatten(0, 1)  # type: ignore[no-any-return]

    def spans(self) -> None:
        """Rows are asked for layer by layer."""

    def _bias(self, step: int, q: Tensor) -> Tensor:
        if (step, q.dtype) not in self._biases:
            row = torch.arange(self.length, device=q.device)
            seen = self._sees & (row[None, :] <= row[:, None] - step)
            self._biases[step, q.dtype] = torch.zeros(seen.shape, dtype=q.dtype, device=q.device).masked_fill_(
                ~seen, _HIDDEN
            )
        return self._biases[step, q.dtype]


class _Attention(torch.autograd.Function):
    """q, and of each step keys and values [B, H, T, d]; bias [B, 1, T, T]; places [B, 1, T] -> [B, H, T, d]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, bias: Tensor, places: Tensor, scale: float, *rest: Tensor) -> Tensor:
        count = len(rest) // 2
        keys, values = rest[:count], rest[count:]
        first, lse, *kept = _fused(q, keys[0], values[0], bias, scale)
        scores = []
        for r in range(1, count):
            score = (q.float() * _later(keys[r], count - 1 - r).float()).sum(-1) * scale
            scores.append(score.masked_fill(places < count - 1 - r, -torch.inf))
        whole = torch.logsumexp(torch.stack([lse, *scores]), 0) if scores else lse
        out = first.float() * (lse - whole).exp()[..., None]
        for r, score in enumerate(scores, 1):
            out += (score - whole).exp()[..., None] * _later(values[r], count - 1 - r).float()
        out = out.to(q.dtype)
        ctx.save_for_backward(q, bias, places, out, whole, *rest, *scores)
        ctx.scale, ctx.kept = scale, kept
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad = grads[0].contiguous()
        q, bias, _, out, whole, *others = ctx.saved_tensors
        count = (len(others) + 1) // 3
        keys, values, scores = others[:count], others[count : 2 * count], others[2 * count :]
        d_q, d_k, d_v = _fused_backward(grad, q, keys[0], values[0], bias, out, whole, ctx.kept, ctx.scale)
        d_q = d_q.float()
        d_keys, d_values = [d_k], [d_v]
        mean = (grad.float() * out.float()).sum(-1)
        for r, score in enumerate(scores, 1):
            by = count - 1 - r
            weight = (score - whole).exp()
            d_score = weight * ((grad.float() * _later(values[r], by).float()).sum(-1) - mean) * ctx.scale
            d_q += d_score[..., None] * _later(keys[r], by).float()
            d_keys.append(_sooner((d_score[..., None] * q.float()).to(q.dtype), by))
            d_values.append(_sooner((weight[..., None] * grad.float()).to(q.dtype), by))
        return d_q.to(q.dtype), None, None, None, *d_keys, *d_values


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> tuple[Any, ...]:
    """Its part of the result, the log of its sum [B, H, T], and what the backward needs."""
    if q.device.type == "cpu":
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = flash(q, k.contiguous(), v.contiguous(), 0.0, False, attn_mask=bias, scale=scale)
        return out, lse
    wide = bias.expand(-1, q.shape[1], -1, -1)
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    out, lse, *kept = efficient(q, k, v, wide, True, 0.0, False, scale=scale)
    return out, lse[..., : q.shape[2]], *kept


def _fused_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    out: Tensor,
    lse: Tensor,
    kept: list[Tensor],
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if q.device.type == "cpu":
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        found = backward(grad, q, k.contiguous(), v.contiguous(), out, lse, 0.0, False, attn_mask=bias, scale=scale)
        return found  # type: ignore[no-any-return]
    wide = bias.expand(-1, q.shape[1], -1, -1)
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention_backward
    wanted = [True, True, True, False]
    found = efficient(grad, q, k, v, wide, out, lse.contiguous(), *kept, 0.0, wanted, False, scale=scale)
    return found[0], found[1], found[2]


def _later(x: Tensor, by: int) -> Tensor:
    """Row i of the result is row i - by; the first rows are zero."""
    return x if by == 0 else F.pad(x, (0, 0, by, 0))[:, :, : x.shape[2]]


def _sooner(x: Tensor, by: int) -> Tensor:
    """Row i of the result is row i + by: what `_later` took from each row."""
    return x if by == 0 else F.pad(x, (0, 0, 0, by))[:, :, by:]
