"""This process among those that share every batch: PyTorch's data parallelism, started by `torchrun`.

    torchrun --nproc-per-node 2 -m outdraft.cli.main train ...

Each worker takes its share of a batch's rows; gradients are averaged. The mean of two gradients does not depend on
their order, so a run is reproducible for a given number of workers.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from outdraft.models.networks.device import choose_device


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """This worker's rank among `size`."""

    rank: int = 0
    size: int = 1

    def wait(self) -> None:
        """Until every worker is here."""
        if self.size > 1:
            dist.barrier()

    @property
    def leads(self) -> bool:
        """Whether this worker writes files and reports."""
        return self.rank == 0

    def add_up(self, values: Tensor) -> Tensor:
        """The sum over all workers, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values


@contextmanager
def join_team(device: str) -> Iterator[Team]:
    """The team that `torchrun` started, or this process alone."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield Team()
        return
    dist.init_process_group("cpu:gloo,cuda:nccl" if choose_device(device).type == "cuda" else "gloo")
    try:
        yield Team(rank=dist.get_rank(), size=size)
    finally:
        dist.destroy_process_group()
