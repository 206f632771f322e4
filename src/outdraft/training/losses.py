"""Losses between the target's distribution p and the draft's distribution q, one number a row.

    forward_kl           KL(p || q)                              covers all that the target may write
    reverse_kl           KL(q || p)                              seeks its modes
    jensen_shannon       (KL(p || m) + KL(q || m)) / 2           m = (p + q) / 2
    soft_cross_entropy   -sum p log q                            forward KL but for p's entropy, which nobody can change
    cross_entropy        -log q(the text's own next token)
    total_variation      1 - sum min(p, q)                       the rate of rejection itself
    log_acceptance       -log sum min(p, q)                      "LK", steep where nothing is accepted yet
    hybrid               w KL(p || q) + (1 - w) TV, w = e^(-3 a) a: the row's own acceptance, taken as a constant

The divergences: DistillSpec, Zhou et al. 2023, https://arxiv.org/abs/2310.08461. The last two: "LK losses", 2026,
https://arxiv.org/abs/2602.23881. One drafted token is accepted with sum(min(p, q)) = 1 - total variation (Leviathan et
al. 2022, https://arxiv.org/abs/2211.17192).
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from outdraft.core.errors import ConfigError
from outdraft.core.near_miss import near_miss

# log p [n, V], log q [n, V], the text's tokens [n] (-1: one that the draft cannot say) -> [n]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
_DECAY = 3.0  # of the hybrid's weight with acceptance


def forward_kl(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """KL(p || q): large where the target may write what the draft does not."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def reverse_kl(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """KL(q || p): large where the draft writes what the target would not."""
    return (log_q.exp() * (log_q - log_p)).sum(-1)


def jensen_shannon(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """Between both and their even mixture."""
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return 0.5 * (log_p.exp() * (log_p - log_m) + log_q.exp() * (log_q - log_m)).sum(-1)


def soft_cross_entropy(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """-sum p log q: forward KL but for the entropy of p."""
    return -(log_p.exp() * log_q).sum(-1)


def cross_entropy(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """Of the text's own tokens; nothing where the draft cannot say one."""
    return -log_q.gather(-1, tokens.clamp_min(0)[:, None])[:, 0] * (tokens >= 0)


def total_variation(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """Half the L1 distance."""
    return 0.5 * (log_p.exp() - log_q.exp()).abs().sum(-1)


def log_acceptance(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """-log of the acceptance of one token."""
    return -torch.logsumexp(torch.minimum(log_p, log_q), -1)


def hybrid(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """From total variation to KL as acceptance falls."""
    far = total_variation(log_p, log_q, tokens)
    weight = (-_DECAY * (1 - far.detach())).exp()
    return weight * forward_kl(log_p, log_q, tokens) + (1 - weight) * far


LOSSES: Mapping[str, Loss] = {
    loss.__name__: loss
    for loss in (
        forward_kl, reverse_kl, jensen_shannon, soft_cross_entropy, cross_entropy, total_variation, log_acceptance,
        hybrid,
    )
}  # fmt: skip


def weighted(weights: Mapping[str, float]) -> Loss:
    """The sum of several losses. Raises `ConfigError` for one that is not known."""
    for name in weights:
        if name not in LOSSES:
            raise ConfigError(f"loss {name!r} is unknown{near_miss(name, list(LOSSES))}; known: {', '.join(LOSSES)}")
    if not all(0 <= weight < math.inf for weight in weights.values()):
        raise ConfigError(f"weights of losses are numbers of at least 0, not {dict(weights)}")
    if not any(weights.values()):
        raise ConfigError("no loss has a weight: nothing would be learned")
    parts = [(LOSSES[name], weight) for name, weight in weights.items()]

    def total(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
        return torch.stack([weight * loss(log_p, log_q, tokens) for loss, weight in parts]).sum(0)

    return total


def logs(logits: Tensor) -> Tensor:
    """Log probabilities in float32 at least: [n, V] -> [n, V]."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide, -1)
