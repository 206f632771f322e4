"""Open the port to a target (`models/networks/port.py`), over its network and its cache."""

from outdraft.cache.config import CacheConfig
from outdraft.core.cache import KVCache
from outdraft.core.target import Recorder
from outdraft.models.adapter.network import TransformersNetwork
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetCosts, TargetFacts, TargetLayers, TargetOrigin, TargetPort, TargetRows


def open_port(
    network: Network,
    cache: KVCache,
    *,
    max_len: int,
    exact: bool,
    record: Recorder | None,
    origin: TargetOrigin,
    own_rows: CacheConfig,
) -> TargetPort:
    """The door to a network that reads and writes this cache. `own_rows`: the cache of a drafter's own rows."""
    config = network.config
    facts = TargetFacts(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        max_len=max_len,
        device=network.device,
        dtype=network.dtype,
        exact=exact,
        logit_cap=config.logit_cap,
        layers_apart=not isinstance(network, TransformersNetwork),
    )
    return TargetPort(
        facts=facts,
        layers=TargetLayers(network, exact=exact, record=record),
        rows=TargetRows(cache, exact=exact),
        costs=TargetCosts(network, exact=exact),
        origin=origin,
        cache=own_rows,
    )
