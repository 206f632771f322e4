"""Tiny draft models that several rows share: functions of the tiny target and an empty directory."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from outdraft.models.base import Decoder
from outdraft.models.load import save_model
from outdraft.testing.tiny import tiny_model

Side = Callable[[Decoder, Path], Mapping[str, Any]]


def smaller_model(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random model of the target's vocabulary, which agrees with it now and then."""
    config = target.config
    save_model(tiny_model(vocab=config.vocab_size, layers=1, max_len=config.max_len, seed=5), directory)
    return {"model": str(directory)}


def twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The target with a little noise on every weight: mostly right, so that long runs are accepted and cut."""
    copy = Decoder(target.config, target.embedding.dtype)
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for ours, theirs in zip(copy.parameters(), target.parameters(), strict=True):
            noise = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
            ours.copy_(theirs + noise * 0.05 * theirs.std())
    save_model(copy, directory / "twin")
    return {"model": str(directory / "twin")}


def randomise(module: nn.Module, seed: int) -> None:
    """Weights wide enough that guesses wander."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1 + 0.2 * noise if parameter.dim() == 1 else noise * parameter.shape[1] ** -0.5)


def inside(side: Side, **options: Any) -> Side:
    """The draft model of another side, as the inner drafter of a drafter made of drafters."""
    return lambda target, directory: {"drafter": {"method": "draft_model", **side(target, directory), **options}}
