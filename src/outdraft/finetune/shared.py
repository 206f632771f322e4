"""What fine-tunings share: the options of the low-rank changes, and how these begin, or go on."""

from dataclasses import dataclass
from pathlib import Path

from outdraft.models.networks.base import Decoder
from outdraft.models.remake.lora import FOLDER, has_lora, load_lora, new_lora
from outdraft.models.remake.lora_config import LoraConfig
from outdraft.models.remake.taught import TaughtTarget
from outdraft.options.errors import ModelLoadError


@dataclass(frozen=True, slots=True, kw_only=True)
class LowRankOptions:
    """How much of the target may change. Raises `ConfigError` naming what is out of range."""

    rank: int = 16
    alpha: float = 32.0  # a change is alpha / rank times the product of its factors

    def __post_init__(self) -> None:
        LoraConfig(rank=self.rank, alpha=self.alpha)


def teach(options: LowRankOptions, target: Decoder, seed: int) -> TaughtTarget:
    """A copy that nothing has changed yet. Raises `CapabilityError` for a target of rounded weights or other parts."""
    lora = new_lora(target, LoraConfig(rank=options.rank, alpha=options.alpha), seed)
    return TaughtTarget(target, lora.train().requires_grad_(True))


def go_on(target: Decoder, directory: Path) -> TaughtTarget:
    """The changes that a training wrote to `directory`, of rank and alpha as they are there.

    Raises `ModelLoadError` where there are none, or for a target of other sizes.
    """
    if not has_lora(directory):
        raise ModelLoadError(
            f"{directory} has no folder {FOLDER}, so there are no changes to go on from: give the directory that such "
            "a training wrote (its --out)"
        )
    return TaughtTarget(target, load_lora(directory, target).train().requires_grad_(True))
