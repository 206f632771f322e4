"""Causal attention for training on a CPU: the forward is torch's flash kernel, the backward is five matrix products.

Torch's own CPU backward runs at a few per cent of the matrix unit; recomputing the probabilities from the saved
log-sum-exp and letting the compiler fuse the elementwise part takes half the time. Same mathematics as FlashAttention
(Dao et al. 2022, https://arxiv.org/abs/2205.14135), without its tiling: T x T scores are held for one layer at a time.
"""

from typing import Any

import torch
from torch import Tensor


class _CausalAttention(torch.autograd.Function):
    """softmax(q k^T scale + causal) v for q, k, v [B, H, T, d]."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = flash(q, k, v, 0.0, True, scale=scale)  # [B, H, T, d], [B, H, T]
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.scale = scale
        return out  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (grad,) = grads
        q, k, v, out, lse = ctx.saved_tensors
        unseen = torch.full((q.shape[2], q.shape[2]), float("-inf")).triu(1)  # [T, T]
        scores = torch.matmul(q, k.transpose(-1, -2))
        p = (scores.float() * ctx.scale + unseen - lse[..., None]).exp().to(q.dtype)  # [B, H, T, T]
        dv = torch.matmul(p.transpose(-1, -2), grad)
        dp = torch.matmul(grad, v.transpose(-1, -2))
        mean = (grad.float() * out.float()).sum(-1, keepdim=True)  # [B, H, T, 1]
        ds = (p.float() * (dp.float() - mean) * ctx.scale).to(q.dtype)
        return torch.matmul(ds, k), torch.matmul(ds.transpose(-1, -2), q), dv, None


class TrainingContext:
    """`batch` sequences of `length` rows, batch-major; what `CausalContext` computes, with a faster backward."""

    def __init__(self, batch: int, length: int) -> None:
        self.batch = batch
        self.length = length
        self.bulk = ((0, batch * length),)

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None, scale: float
    ) -> Tensor:  # fmt: skip
        """q [N, H, d], k and v [N, Hkv, d] -> [N, H * d]; windows are not supported here."""
        assert window is None or window >= self.length
        group = q.shape[1] // k.shape[1]
        shape = (self.batch, self.length, -1, q.shape[-1])
        q, k, v = (x.reshape(shape).transpose(1, 2) for x in (q, k, v))  # [B, H, T, d]
        if group > 1:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        out: Tensor = _CausalAttention.apply(q.contiguous(), k.contiguous(), v.contiguous(), scale)  # type: ignore[no-untyped-call]
        return out.transpose(1, 2).flatten(2).flatten(0, 1)

    def spans(self) -> None:
        """There is no cache to run over."""
