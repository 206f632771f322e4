"""`row_loss.py` on CUDA: a program a row, which holds the whole row."""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _row(q_at, p_at, weights_at, losses_at, accepted_at, gradient_at, width, decay, HYBRID: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip  # noqa
    row = tl.program_id(0).to(tl.int64)
    weight = tl.load(weights_at + row)
    column = tl.arange(0, BLOCK)
    inside = column < width
    q = tl.load(q_at + row * width + column, mask=inside, other=-float("inf")).to(tl.float32)
    p = tl.load(p_at + row * width + column, mask=inside, other=-float("inf")).to(tl.float32)
    q, p = q - tl.max(q, 0), p - tl.max(p, 0)
    log_q, log_p = q - tl.log(tl.sum(tl.exp(q), 0)), p - tl.log(tl.sum(tl.exp(p), 0))
    own, theirs = tl.exp(log_q), tl.exp(log_p)
    accepted = tl.sum(tl.minimum(own, theirs), 0)
    loss = tl.sum(tl.where(inside, theirs * (log_p - log_q), 0.0), 0)
    gradient = own - theirs
    if HYBRID:
        share = tl.exp(-decay * accepted)
        below = tl.where(own < theirs, 1.0, 0.0)
        lack = tl.sum(own * below, 0)
        loss = share * loss + (1 - share) * (1 - accepted)
        gradient = share * gradient - (1 - share) * own * (below - lack)
    tl.store(losses_at + row, loss * weight)
    tl.store(accepted_at + row, accepted)
    tl.store(gradient_at + row * width + column, (gradient * weight).to(gradient_at.dtype.element_ty), mask=inside)


def launch(q: Tensor, p: Tensor, weights: Tensor, hybrid: bool, decay: float) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [N, V], weights [N] float32 -> losses [N], accepted [N], gradient [N, V] in the type of q."""
    q, p, weights = q.contiguous(), p.contiguous(), weights.float().contiguous()
    count, width = q.shape
    losses = torch.empty(count, device=q.device)
    accepted, gradient = torch.empty_like(losses), torch.empty_like(q)
    block = triton.next_power_of_2(width)
    _row[(count,)](q, p, weights, losses, accepted, gradient, width, decay, HYBRID=hybrid, BLOCK=block, num_warps=16)
    return losses, accepted, gradient
