"""How long a target pass takes, measured on the target itself: what shapes and policies that weigh costs begin from.

Data in: a network, its cache and a number of rows; data out: seconds. The rows belong to a text of nobody's.
"""

from time import perf_counter

import torch

from outdraft.core.cache import KVCache
from outdraft.models.network import Network
from outdraft.nn.context import CachedContext, Segment

_NOBODY = -1  # no sequence has this id
_REPEATS = 5


def measure_pass(network: Network, cache: KVCache, num_rows: int, *, exact: bool) -> float:
    """The least seconds of a few passes over a chain of `num_rows` rows of one sequence, logits included."""
    device = network.device
    ids, positions = torch.zeros(num_rows, dtype=torch.long, device=device), torch.arange(num_rows, device=device)
    times = []
    cache.add(_NOBODY)
    cache.reserve(_NOBODY, num_rows)
    for _ in range(_REPEATS):
        began = perf_counter()
        segment = Segment(seq=_NOBODY, start=0, stop=num_rows, base=0, bulk=0)
        hidden = network.run(network.embed(ids, positions), positions, CachedContext(cache, [segment], exact)).hidden
        float(network.logits(hidden)[-1, -1])  # a device answers when it is done
        times.append(perf_counter() - began)
    cache.free(_NOBODY)
    return min(times)
