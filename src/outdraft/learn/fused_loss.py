"""Losses of rows by the kernels, as PyTorch's autograd sees them: loss, mass and gradient in one reading of the logits.

What the kernels do not know, PyTorch computes (`compare.py`): other losses, temperatures and number formats, other
devices, weights that learn. Both agree to float32's rounding; the gradient is kept in the format of the logits.
"""

from typing import Any

import torch
from torch import Tensor

from outdraft.kernels.row_losses import knows, row_losses
from outdraft.learn.losses import Loss, Weighted


def fused_loss(
    p: Tensor, whole: Tensor, at: Tensor, q: Tensor, said: Tensor, heavy: Tensor, loss: Loss
) -> tuple[Tensor, Tensor] | None:
    """The sum of weighted losses [], and what would be accepted [n]; None where PyTorch must compute them.

    The target's logits [m, V], the logarithm of what all that it may write sums up to [m], the rows of these [n] that
    the draft's logits [n, V] are compared with, the text's tokens [n] (-1: one that the draft cannot say), the rows'
    weights [n].
    """
    if not isinstance(loss, Weighted) or not knows(loss.weights) or heavy.requires_grad or p.requires_grad:
        return None
    learns = torch.is_grad_enabled() and q.requires_grad
    found = row_losses(p, whole, at, q.detach(), said, heavy, loss.weights, learns=learns)
    if found is None:
        return None
    total = (found.losses * heavy).sum()
    return (_FusedLoss.apply(q, total, found.gradient) if learns else total), found.mass  # type: ignore[no-untyped-call]


class _FusedLoss(torch.autograd.Function):
    """A number whose gradient by `q` is known."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, total: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return total.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0].to(gradient.dtype), None, None
