"""This process among those that share every batch: PyTorch's data parallelism, started by `torchrun`.

    torchrun --nproc-per-node 2 -m outdraft.cli.main train ...

Each worker takes its share of a batch's rows; gradients are averaged. The mean of two gradients does not depend on
their order, so a run is reproducible for a given number of workers. With `fully_shard` each worker holds a part of
every parameter, gradient and moment as well, and saves its part:

    RUN/checkpoint.pt    progress, and which parts belong to it; it is replaced when they are whole
        shards-<step>/   torch.distributed.checkpoint: one file of each worker

Parameters are gathered for a pass and given back after it. For evaluations, and for what is saved in the end, their
whole values are copied into a twin of the module that is not sharded.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from outdraft.learn.step import Optimizer, whole
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


def shard(module: nn.Module, team: Team, device: torch.device) -> None:
    """Share all parameters of a module out among the team, in place."""
    fully_shard(module, mesh=init_device_mesh(device.type, (team.size,)))


@torch.no_grad()
def gather(module: nn.Module, twin: nn.Module) -> None:
    """Copy the whole parameters of a sharded module into its twin; every worker must ask."""
    own = dict(twin.named_parameters())
    for name, parameter in module.named_parameters():
        own[name].copy_(whole(parameter))


def save_parts(run_dir: Path, step: int, module: nn.Module, optimizer: Optimizer) -> str:
    """Write this worker's part; returns the folder's name when all are whole."""
    place = run_dir / f"shards-{step}"
    save(_state(module, optimizer), checkpoint_id=place)
    return place.name


def load_parts(run_dir: Path, name: str, module: nn.Module, optimizer: Optimizer) -> None:
    """Read them back, in place."""
    for parameter in optimizer.parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step(0.0)  # makes moments to read into; the rates are 0
    optimizer.clear()
    load(_state(module, optimizer), checkpoint_id=run_dir / name)


def forget_others(run_dir: Path, name: str) -> None:
    """Remove the parts of earlier steps, and those of a step that was cut off."""
    for place in run_dir.glob("shards-*"):
        if place.name != name:
            shutil.rmtree(place, ignore_errors=True)


def _state(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Weights and moments under one name each."""
    found = {f"weights.{name}": one.detach() for name, one in module.named_parameters() if one.requires_grad}
    for i, part in enumerate(optimizer.state()):
        for number, kept in part["state"].items():
            for name, value in kept.items():
                if isinstance(value, Tensor):
                    found[f"optimizer.{i}.{number}.{name}"] = value
    return found
