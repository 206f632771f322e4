"""A CUDA graph for machines without one: the pass is traced to a list of tensor operations, which is then replayed.

Like a graph, a replay runs no Python of the pass: whatever the host decided while recording is frozen, static tensors
are read as they are by then, and a question from the device to the host (`.item()`) cannot be recorded at all.
"""

from collections.abc import Callable
from typing import Any

from torch.fx.experimental.proxy_tensor import make_fx


def record_by_tracing(function: Callable[[], Any]) -> Callable[[], Any]:
    return make_fx(function)()
