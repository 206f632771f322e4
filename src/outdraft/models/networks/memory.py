"""The memory that a network's layers ask for: keys and values, and the states of those that are recurrent."""

from math import prod

import torch

from outdraft.cache.config import CacheConfig
from outdraft.cache.hybrid import HybridCache
from outdraft.cache.paged import PagedCache
from outdraft.cache.state import StateStore
from outdraft.cache.static import StaticCache
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.fold import empty_state
from outdraft.options.errors import CapabilityError


def build_memory(
    config: ModelConfig, cache: CacheConfig, dtype: torch.dtype, device: torch.device, max_len: int
) -> StaticCache | PagedCache | HybridCache:
    """An empty cache for the network of this configuration, whose activations are `dtype`.

    Raises `CapabilityError` for prefix caching over states.
    """
    shapes = config.states()
    num_layers = config.num_layers - len(shapes)
    rows = cache.build(num_layers, config.num_kv_heads, config.head_dim, dtype, device, max_len)
    if not shapes:
        return rows
    if cache.prefixes:
        raise CapabilityError(
            f"enable_prefix_caching: layers {sorted(shapes)} of this model are recurrent, and a text cannot begin from "
            "the keys and values of an earlier one alone: leave prefix caching out"
        )
    empty = empty_state((sum(prod(shape) for shape in shapes.values()),), torch.empty(0, dtype=dtype, device=device))
    return HybridCache(rows, StateStore(empty, pool=cache.pool, poison=cache.poison), shapes)
