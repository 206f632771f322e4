"""A run's state on disk: optimiser (with the float32 masters), step, schedule. Written beside and renamed into place.

The data position is the step itself, because batches are a function of (seed, step).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from outdraft.core.errors import ConfigError
from outdraft.core.new_file import new_file


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a training run stands in its schedule."""

    step: int  # steps done
    decay_at: int
    end: int
    seconds: float  # training time so far


def save_checkpoint(path: Path, optimizer_state: dict[str, Any], progress: Progress) -> None:
    """Write a checkpoint; a crash in between leaves the old one."""
    fields = {name: getattr(progress, name) for name in Progress.__slots__}
    with new_file(path) as beside:
        torch.save({"optimizer": optimizer_state, "progress": fields}, beside)


def load_checkpoint(path: Path) -> tuple[dict[str, Any], Progress]:
    """The optimiser's state and the progress."""
    if not path.exists():
        raise ConfigError(f"nothing to resume: no checkpoint at {path}")
    saved = torch.load(path, map_location="cpu", weights_only=True)
    return saved["optimizer"], Progress(**saved["progress"])
