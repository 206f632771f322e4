"""How long a target pass takes, measured on the target itself: the starting point of tree shapes and policies that
weigh costs.

Data in: a pass over rows of no request's text, which returns logits; data out: seconds.
"""

from collections.abc import Callable
from time import perf_counter

from torch import Tensor

_REPEATS = 5


def measure_pass(run: Callable[[], Tensor]) -> float:
    """The least seconds of a few passes; `run` returns logits [n, V]."""
    times = []
    for _ in range(_REPEATS):
        began = perf_counter()
        float(run()[-1, -1])  # a device answers when it is done
        times.append(perf_counter() - began)
    return min(times)
