"""What was learned, on disk: weights, optimiser, step, schedule, best score. Written beside and renamed into place.

Batches and noise are functions of (seed, step), so the step is all that a run that goes on must know of them. What a
drafter loads is written by its learner (`core.learner.Learner.save`).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import require_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a training run stands."""

    step: int  # steps done
    decay_at: int
    end: int
    seconds: float  # training time so far
    best: float | None = None  # the best score of an evaluation
    since_best: int = 0  # evaluations since then
    skipped: int = 0  # steps whose gradient was not finite
    is_asked: bool = False  # the decay was asked for (`Schedule.is_asked`)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a run needs in order to go on: weights, moments, place, settings."""

    weights: dict[str, Tensor]
    optimizer: list[dict[str, Any]]
    progress: Progress
    about: dict[str, Any] = field(default_factory=dict)  # of the run: what must be the same when it goes on
    memory: dict[str, Tensor] = field(default_factory=dict)  # of the objective
    shards: str = ""  # the folder beside it that holds weights and moments in parts; "": they are here


def learned(module: nn.Module) -> dict[str, Tensor]:
    """What is trained of a module, by name; tied parameters once."""
    return {name: one.detach() for name, one in module.named_parameters() if one.requires_grad}


def put_back(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Set what is trained of a module. Raises `ConfigError` for the weights of another one."""
    own = learned(module)
    if {name: one.shape for name, one in weights.items()} != {name: one.shape for name, one in own.items()}:
        raise ConfigError("these are the weights of another network: other names, or other shapes")
    module.load_state_dict(dict(weights), strict=False)


def save_state(path: Path, state: State, checkpoint: Path | None = None) -> None:
    """Write it; a crash in between leaves the old one. Raises `ConfigError` where there is no room for it.

    `checkpoint`: what its run goes on from; by default this file.
    """
    told = {
        "weights": state.weights,
        "optimizer": state.optimizer,
        "progress": asdict(state.progress),
        "about": state.about,
        "memory": state.memory,
        "shards": state.shards,
    }
    with new_file(path) as beside:
        try:
            torch.save(told, beside)
        except RuntimeError as error:  # what torch makes of a full disk
            said = str(error).partition("\n")[0]
            goes_on = (checkpoint or path).exists()
            cure = "go on with --resume, or begin anew with another --out" if goes_on else "begin anew"
            raise ConfigError(f"{path} cannot be written ({said:.100}): free space there and {cure}") from error


def load_state(path: Path) -> State:
    """Raises `ConfigError` where there is none, a damaged one, or one of another version."""
    if not path.exists():
        raise ConfigError(f"nothing to resume: no checkpoint at {path}")
    try:
        saved = torch.load(require_file(path), map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, UnpicklingError) as error:
        said = str(error).partition("\n")[0].partition(". ")[0]
        raise ConfigError(
            f"{path} ({path.stat().st_size} bytes) is cut short or damaged ({said:.100}): take it from a copy, or "
            "train anew with another --out"
        ) from error
    try:
        return State(**{**saved, "progress": Progress(**saved["progress"])})
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no checkpoint that this version can resume ({error}): start anew") from error
