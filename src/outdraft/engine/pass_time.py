"""How long a target pass takes, measured on the target itself: what shapes and policies that weigh costs begin from.

Data in: a network, a context of nobody's text, and its number of rows; data out: seconds.
"""

from time import perf_counter

import torch

from outdraft.models.network import Network
from outdraft.nn.context import AttentionContext

_REPEATS = 5


def measure_pass(network: Network, context: AttentionContext, num_rows: int) -> float:
    """The least seconds of a few passes over a chain of `num_rows` rows, logits included."""
    device = network.device
    ids, positions = torch.zeros(num_rows, dtype=torch.long, device=device), torch.arange(num_rows, device=device)
    times = []
    for _ in range(_REPEATS):
        began = perf_counter()
        hidden = network.run(network.embed(ids, positions), positions, context).hidden
        float(network.logits(hidden)[-1, -1])  # a device answers when it is done
        times.append(perf_counter() - began)
    return min(times)
