"""How far one model's law is from another's, on text: mean KL and how often both would say the same.

    kl      mean over positions of  sum_x p(x) log(p(x) / r(x)),  p the original, r the variant, in nats per token
    top1    share of positions at which both have the same most probable token
Data in: two decoders and windows of ids; data out: a `Divergence`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.models.base import Decoder
from outdraft.nn.context import CausalContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Means over `num_tokens` positions."""

    kl: float
    top1: float
    num_tokens: int


@torch.inference_mode()
def compare_laws(original: Decoder, variant: Decoder, windows: Tensor) -> Divergence:
    """windows [W, T]: each is read from an empty past; every position counts."""
    kl, same = 0.0, 0
    for ids in windows:
        p, r = (_log_law(model, ids) for model in (original, variant))  # [T, V]
        kl += float((p.exp() * (p - r)).sum())
        same += int((p.argmax(1) == r.argmax(1)).sum())
    return Divergence(kl=kl / windows.numel(), top1=same / windows.numel(), num_tokens=windows.numel())


def _log_law(model: Decoder, ids: Tensor) -> Tensor:
    ids = ids.to(model.embedding.device)
    positions = torch.arange(len(ids), device=ids.device)
    logits: Tensor = model(ids, positions, CausalContext(1, len(ids)))
    return logits.double().log_softmax(1)
