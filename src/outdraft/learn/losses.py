"""Losses between the target's distribution p and the draft's distribution q, one number a row.

    forward_kl           KL(p || q)                              covers all that the target may write
    reverse_kl           KL(q || p)                              seeks its modes
    jensen_shannon       (KL(p || m) + KL(q || m)) / 2           m = (p + q) / 2
    soft_cross_entropy   -sum p log q                            forward KL but for p's entropy, which no draft changes
    top_cross_entropy    -sum p log q over p's ten likeliest    a draft's guesses are among them
    cross_entropy        -log q(the text's own next token)
    sequence_kd          the same, of texts that the target itself wrote
    total_variation      1 - sum min(p, q)                       the rate of rejection itself
    log_acceptance       -log sum min(p, q)                      "LK", steep where nothing is accepted yet
    hybrid               w KL(p || q) + (1 - w) TV, w = e^(-3 a) a: the row's own acceptance, taken as a constant

and two that compare something else: for drafts that write texts, and for drafts that guess the target's states:

    reinforce            the draft's own windows, by what they are worth (training/reinforce.py)
    smooth_l1            mean of d^2 / 2 where |d| < 1, else |d| - 1/2    d: guessed state - true state

The divergences: DistillSpec, Zhou et al. 2023, https://arxiv.org/abs/2310.08461. The last two: "LK losses", 2026,
https://arxiv.org/abs/2602.23881. Smooth L1 of features: "EAGLE", Li et al. 2024, https://arxiv.org/abs/2401.15077.
The likeliest tokens: HASS, Zhang et al. 2024, https://arxiv.org/abs/2408.15766. One drafted token is accepted with
sum(min(p, q)) = 1 - total variation (Leviathan et al. 2022, https://arxiv.org/abs/2211.17192).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.options.errors import ConfigError
from outdraft.options.near_miss import near_miss

# log p [n, V], log q [n, V], the text's tokens [n] (-1: one that the draft cannot say) -> [n]
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
_TOP = 10  # tokens
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


def top_cross_entropy(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """-sum p log q over the target's likeliest tokens."""
    best = log_p.topk(min(_TOP, log_p.shape[-1]), -1)
    return -(best.values.exp() * log_q.gather(-1, best.indices)).sum(-1)


def cross_entropy(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """Of the text's own tokens; nothing where the draft cannot say one."""
    return -log_q.gather(-1, tokens.clamp_min(0)[:, None])[:, 0] * (tokens >= 0)


def sequence_kd(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """Cross-entropy of tokens that the target itself wrote (Kim and Rush 2016, https://arxiv.org/abs/1606.07947).

    What it is more than `cross_entropy` is a promise about the text, which the trainer checks.
    """
    return cross_entropy(log_p, log_q, tokens)


def total_variation(log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
    """Half the sum of |p - q| over the vocabulary: the chance that one drafted token is rejected."""
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
        forward_kl,
        reverse_kl,
        jensen_shannon,
        soft_cross_entropy,
        top_cross_entropy,
        cross_entropy,
        sequence_kd,
        total_variation,
        log_acceptance,
        hybrid,
    )
}
OF_TEXT = ("cross_entropy", "sequence_kd")  # these learn the text's own tokens, whatever wrote them
STATES = "smooth_l1"  # made by the learners of kinds that guess states (drafters/shared/learning/states.py)
BESIDE = (STATES, "reinforce")  # losses that compare something else than the distributions of one row


@dataclass(frozen=True, slots=True)
class Weighted:
    """The sum of several losses, each by its name; nothing at all for none."""

    weights: Mapping[str, float]

    def __call__(self, log_p: Tensor, log_q: Tensor, tokens: Tensor) -> Tensor:
        if not self.weights:
            return 0 * log_q.sum(-1)
        parts = [weight * LOSSES[name](log_p, log_q, tokens) for name, weight in self.weights.items()]
        return torch.stack(parts).sum(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Losses with their weights, by what they compare."""

    rows: Loss  # distributions, row by row
    beside: Mapping[str, float] = field(default_factory=dict)  # the weights of those that learners make (`Beside`)
    reinforce: float = 0.0  # the weight of `reinforce` (training/reinforce.py)


def mixed(weights: Mapping[str, float]) -> Mix:
    """Losses of every kind. Raises `ConfigError` for one that is not known."""
    known = [*LOSSES, *BESIDE]
    for name in weights:
        if name not in known:
            raise ConfigError(f"loss {name!r} is unknown{near_miss(name, known)}; known: {', '.join(known)}")
    if not all(0 <= weight < math.inf for weight in weights.values()):
        raise ConfigError(f"weights of losses are numbers of at least 0, not {dict(weights)}")
    if not any(weights.values()):
        raise ConfigError("no loss has a weight: nothing would be learned")
    of_rows = {name: weight for name, weight in weights.items() if name in LOSSES}
    return Mix(
        rows=Weighted(of_rows),
        beside={STATES: weights[STATES]} if STATES in weights else {},
        reinforce=weights.get("reinforce", 0.0),
    )


OWN = Mix(rows=Weighted({}))  # of a kind whose loss is its own: none beside it


def logs(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Log probabilities in float32 at least: [n, V] -> [n, V]."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide if temperature == 1 else wide / temperature, -1)
