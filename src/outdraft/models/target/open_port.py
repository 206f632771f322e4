"""Open the port to a target (`models/networks/port.py`), over its network and its cache."""

from outdraft.cache.config import CacheConfig
from outdraft.core.cache import KVCache
from outdraft.core.target import Recorder
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetCosts, TargetLayers, TargetOrigin, TargetPort, TargetRows, network_facts


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
    return TargetPort(
        facts=network_facts(network, max_len=max_len, exact=exact),
        layers=TargetLayers(network, exact=exact, record=record),
        rows=TargetRows(cache, exact=exact),
        costs=TargetCosts(network, exact=exact),
        origin=origin,
        cache=own_rows,
    )
