"""Losses between the target's distribution p and the drafter's distribution q, and the number that speculative decoding
pays for.

All take logits [N, V] and return one mean per row, in nats: forward KL (mass-covering), reverse KL (mode-seeking),
Jensen-Shannon, total variation (DistillSpec, Zhou et al. 2023, https://arxiv.org/abs/2310.08461). The acceptance rate
of one drafted token is sum(min(p, q)) = 1 - total variation (Leviathan et al. 2022, https://arxiv.org/abs/2211.17192).
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def forward_kl(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """KL(p || q): what sequence-level distillation minimises."""
    log_p, log_q = _logs(p_logits, q_logits)
    return (log_p.exp() * (log_p - log_q)).sum(-1).mean()


def reverse_kl(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """KL(q || p), the divergence seen from the draft."""
    log_p, log_q = _logs(p_logits, q_logits)
    return (log_q.exp() * (log_q - log_p)).sum(-1).mean()


def jensen_shannon(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """(KL(p || m) + KL(q || m)) / 2 with m the even mixture."""
    log_p, log_q = _logs(p_logits, q_logits)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return 0.5 * ((log_p.exp() * (log_p - log_m)) + (log_q.exp() * (log_q - log_m))).sum(-1).mean()


def total_variation(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """Half the L1 distance: the rate of rejection."""
    log_p, log_q = _logs(p_logits, q_logits)
    return 0.5 * (log_p.exp() - log_q.exp()).abs().sum(-1).mean()


def soft_cross_entropy(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """-sum p log q: forward KL but for the target's entropy, which training cannot change. Cheapest to compute."""
    return -(F.softmax(p_logits.float(), -1) * F.log_softmax(q_logits.float(), -1)).sum(-1).mean()


def acceptance(p_logits: Tensor, q_logits: Tensor) -> Tensor:
    """Expected acceptance of one token drawn from q: mean of sum(min(p, q))."""
    log_p, log_q = _logs(p_logits, q_logits)
    return torch.minimum(log_p, log_q).exp().sum(-1).mean()


def _logs(p_logits: Tensor, q_logits: Tensor) -> tuple[Tensor, Tensor]:
    return F.log_softmax(p_logits.float(), -1), F.log_softmax(q_logits.float(), -1)


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "forward_kl": forward_kl,
    "reverse_kl": reverse_kl,
    "jensen_shannon": jensen_shannon,
    "total_variation": total_variation,
    "soft_cross_entropy": soft_cross_entropy,
}
