"""Build the target: the runner that the setup asks for, and the memory of its keys and values."""

from dataclasses import replace

import torch

from outdraft.cache.config import CacheConfig
from outdraft.engine.assembly.memory import read_memory
from outdraft.engine.graphed import GraphedRunner
from outdraft.engine.runner import Runner
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import Origin
from outdraft.nn.capture import call_each_time, cuda_recorder
from outdraft.options.errors import CapabilityError
from outdraft.options.sizes import read_bytes

_UNKNOWN = 2**30  # bytes for a pool where free memory cannot be read


def cache_config(layout: str | None, dtype: str, *, prefixes: bool | None, memory: int | str | None) -> CacheConfig:
    """As the user asked for it. A size, and rows that later texts take over, are for a pool of pages.

    `prefixes`: None keeps rows for later texts where pages cost nothing, but not in blocks that were asked for.
    """
    size = None if memory is None else read_bytes(memory, "kv_cache_memory")
    chosen = layout or ("paged" if prefixes or size is not None else "static")
    kept = False if prefixes is None and layout == "static" else prefixes
    return CacheConfig(layout=chosen, dtype=dtype, prefixes=kept, memory=size)


def make_runner(
    network: Network,
    *,
    max_len: int | None,
    exact: bool,
    enforce_eager: bool,
    cache: CacheConfig | None = None,
    origin: Origin | None = None,
) -> Runner:
    """The target. On a GPU over static memory, recorded unless `enforce_eager`, where rows are not exact."""
    cache = _sized(_settled(cache or CacheConfig(), network), network)
    float_rows = cache.dtype == "auto"
    if isinstance(network, Decoder) and network.device.type == "cuda" and not exact and float_rows:
        record = call_each_time if enforce_eager else cuda_recorder(network.device)
        return GraphedRunner(network, record=record, max_len=max_len, cache=cache, origin=origin)
    return Runner(network, max_len=max_len, exact=exact, cache=cache, origin=origin)


def _settled(cache: CacheConfig, network: Network) -> CacheConfig:
    """Where it is open whether to keep rows for later texts, the native kernels do: they read pages as they lie."""
    if cache.prefixes is not None:
        return cache
    is_native = network.kernels != "pytorch"
    return replace(cache, prefixes=is_native, layout="paged" if is_native else cache.layout)


def _sized(cache: CacheConfig, network: Network) -> CacheConfig:
    """Rows that are kept for later texts need a size: if none was given, a quarter of the memory that is free now.

    The system counts weights that are mapped from a file as free, so half of what would be left without them is the
    most. A CPU's memory is taken when it is written to: what is never used costs nothing.
    """
    if not cache.prefixes or cache.memory is not None or cache.num_pages is not None:
        return cache
    if network.device.type == "cuda":
        return replace(cache, memory=torch.cuda.mem_get_info(network.device)[0] // 4, is_given=False)
    try:
        free = read_memory().free
    except CapabilityError:
        free = 4 * _UNKNOWN
    left = max(free - network.pass_bytes, free // 8)
    return replace(cache, memory=min(free // 4, left // 2), is_given=False)
