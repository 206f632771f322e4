"""The loss between two rows of logits with its gradient, in one reading of both: what a long training run waits for.

    p, q [N, V] logits of target and draft, weights [N]
        KL(p || q)                                  gradient of q's logits   q - p
        LK's hybrid, w KL + (1 - w) TV, w = e^(-3 a)      w (q - p) - (1 - w) q (1[q < p] - s)

    a = sum min(p, q), what would be accepted, is taken as a constant in w; s = sum of q where q < p.

The hybrid: "LK losses", 2026, https://arxiv.org/abs/2602.23881. On CUDA by Triton, a program a row; elsewhere by torch.
"""

from typing import Any

import torch
from torch import Tensor

_DECAY = 3.0


class _RowLoss(torch.autograd.Function):
    """The sum of weighted losses, and [N] what would be accepted."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, p: Tensor, weights: Tensor, hybrid: bool) -> tuple[Tensor, Tensor]:
        make = _by_triton if q.device.type == "cuda" else _by_torch
        losses, accepted, gradient = make(q.detach(), p, weights, hybrid)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(accepted)
        return losses.sum(), accepted

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0].to(gradient.dtype), None, None, None


def row_loss(q: Tensor, p: Tensor, weights: Tensor, *, hybrid: bool) -> tuple[Tensor, Tensor]:
    """Logits q (learned) and p (fixed) [N, V], weights [N] -> the weighted sum of losses [], accepted [N]."""
    total, accepted = _RowLoss.apply(q, p, weights, hybrid)  # type: ignore[no-untyped-call]
    return total, accepted


def _by_torch(q: Tensor, p: Tensor, weights: Tensor, hybrid: bool) -> tuple[Tensor, Tensor, Tensor]:
    log_q, log_p = q.float().log_softmax(-1), p.float().log_softmax(-1)
    own, theirs = log_q.exp(), log_p.exp()
    accepted = torch.minimum(own, theirs).sum(-1)
    losses, gradient = (theirs * (log_p - log_q)).sum(-1), own - theirs
    if hybrid:
        share = (-_DECAY * accepted).exp()
        below = (own < theirs).float()
        lack = (own * below).sum(-1, keepdim=True)
        losses = share * losses + (1 - share) * (1 - accepted)
        gradient = share[:, None] * gradient - (1 - share)[:, None] * own * (below - lack)
    return losses * weights, accepted, (gradient * weights[:, None]).to(q.dtype)


def _by_triton(q: Tensor, p: Tensor, weights: Tensor, hybrid: bool) -> tuple[Tensor, Tensor, Tensor]:
    from lab.smollm2.row_loss_triton import launch

    return launch(q, p, weights, hybrid, _DECAY)
