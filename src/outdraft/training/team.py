"""A few single-threaded worker processes that share every batch and add up their gradients.

On a busy machine this beats one process with as many threads: threads wait for each other at every operation, workers
once a step. The sum of two gradients does not depend on their order, so a run is reproducible for a given team size.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

# Large blocks would else be mapped and unmapped at every operation, a fifth of the time.
_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "20000000000", "MALLOC_TOP_PAD_": "268435456"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """This worker's rank among `size`."""

    rank: int = 0
    size: int = 1

    def add_up(self, values: Tensor) -> Tensor:
        """The sum over all workers, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values


def run_team(work: Callable[[Team], None], size: int, run_dir: Path) -> None:
    """Call `work` in `size` processes (in this one if 1); returns when all are done. `work` must be picklable."""
    if size <= 1:
        work(Team())
        return
    run_dir.mkdir(parents=True, exist_ok=True)
    meeting = run_dir.resolve() / f"meeting-{os.getpid()}"
    os.environ.update(_ALLOCATOR)  # read by the C library when the workers start
    try:
        spawn(_worker, args=(work, size, str(meeting)), nprocs=size)  # type: ignore[no-untyped-call]
    finally:
        meeting.unlink(missing_ok=True)


def _worker(rank: int, work: Callable[[Team], None], size: int, meeting: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    try:
        work(Team(rank=rank, size=size))
    finally:
        dist.destroy_process_group()
