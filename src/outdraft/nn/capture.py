"""Record a pass once as a CUDA graph and replay it for every later pass; tests can replace the recording function.

A recorder takes a function without arguments, which reads and writes tensors that stay where they are, and returns one
that does the same for whatever those tensors hold by then:

    record_cuda         a CUDA graph: the host launches it as a whole instead of kernel by kernel
    call_each_time      the function itself (`enforce_eager`, and any other device)
"""

from collections.abc import Callable, Hashable
from typing import Any

import torch

from outdraft.core.target import Recorder

_WARM_UPS = 2  # libraries make their handles and choose their kernels in the first calls


def call_each_time(function: Callable[[], Any]) -> Callable[[], Any]:
    """No recording: the function itself, called each time."""
    return function


def record_cuda(function: Callable[[], Any], pool: Any = None) -> Callable[[], Any]:
    """A CUDA graph of the function; its results stand at the same place after every replay."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        results = function()

    def replay() -> Any:
        graph.replay()
        return results

    return replay


def cuda_recorder(device: torch.device) -> Recorder:
    """`record_cuda` whose graphs share the memory of their intermediate results: only one runs at a time.

    A pool whose graphs have all been dropped takes no new one, so a graph that nothing drops keeps it open.
    """
    with torch.cuda.device(device):
        pool = torch.cuda.graph_pool_handle()
        keeper = record_cuda(lambda: torch.zeros(1, device=device), pool)

    def record(function: Callable[[], Any], keeper: Callable[[], Any] = keeper) -> Callable[[], Any]:
        return record_cuda(function, pool)

    return record


class Recordings:
    """One recording for each kind of pass. `reason`: why passes are called instead; None: nothing went wrong."""

    def __init__(self, record: Recorder) -> None:
        self._record = record
        self._kept: dict[Hashable, Callable[[], Any]] = {}
        self.reason: str | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def run(self, key: Hashable, function: Callable[[], Any]) -> Any:
        """The function's result for what its tensors hold now; recorded when `key` is new.

        A recording that fails leaves a reason, and this pass and all new kinds of pass are called from then on.
        """
        if key not in self._kept:
            self._kept[key] = self._try(function)
        return self._kept[key]()

    def forget(self) -> None:
        """Drop all: a tensor that they stand on has moved."""
        self._kept.clear()

    def _try(self, function: Callable[[], Any]) -> Callable[[], Any]:
        if self.reason is not None:
            return function
        try:
            return self._record(function)
        except RuntimeError as error:
            self.reason = f"not recorded, {type(error).__name__}: {str(error).strip().splitlines()[0]}"
            return function
