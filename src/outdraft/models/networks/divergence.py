"""How far one model's distribution is from another's, on text: mean KL and how often both have the same best token.

    kl      mean over positions of  sum_x p(x) log(p(x) / r(x)),  p the original, r the variant, in nats per token
    top1    share of positions at which both have the same most probable token
Data in: two decoders and windows of ids; data out: a `Divergence`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.models.networks.network import Network
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Means over `num_tokens` positions."""

    kl: float
    top1: float
    num_tokens: int


@torch.inference_mode()
def compare_distributions(original: Network, variant: Network, windows: Tensor) -> Divergence:
    """windows [W, T]: each is read from an empty past; every position counts."""
    kl, same = 0.0, 0
    for ids in windows:
        p, r = (_log_distribution(model, ids) for model in (original, variant))  # [T, V]
        kl += float((p.exp() * (p - r)).sum())
        same += int((p.argmax(1) == r.argmax(1)).sum())
    return Divergence(kl=kl / windows.numel(), top1=same / windows.numel(), num_tokens=windows.numel())


def _log_distribution(model: Network, ids: Tensor) -> Tensor:
    return model.logits(states_of(model, ids)).double().log_softmax(1)


def states_of(model: Network, ids: Tensor) -> Tensor:
    """The last states [T, D] of ids [T] that are read from an empty past."""
    count, ids = len(ids), ids.to(model.device)
    config = model.config
    cache = CacheConfig().build_with(
        config.states(), config.num_layers, config.num_kv_heads, config.head_dim, model.dtype, model.device, count
    )
    cache.add(0)
    cache.reserve(0, count)
    context = CachedContext(cache, [Segment(seq=0, start=0, stop=count, base=0, bulk=count)])
    positions = torch.arange(count, device=ids.device)
    return model.run(model.embed(ids, positions), positions, context).hidden
