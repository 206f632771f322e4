"""Learned look-ahead embeddings: what the target reads in the place of tokens that are not there yet.

Monea, Joulin and Grave, "PaSS: parallel speculative sampling", 2023, https://arxiv.org/abs/2311.13581. L vectors of the
target's width are all there is to learn.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from outdraft.models.files.head_files import load_head, save_head

MODEL_TYPE = "outdraft_parallel_sampling"


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAheadConfig:
    """How many there are, and how wide."""

    num_places: int  # L: so many tokens behind the next one are guessed
    hidden_size: int
    num_layers: int  # of the target that they belong to


class LookAheads(nn.Module):
    """places [L, D]: the l-th stands l positions behind the last token that is known."""

    def __init__(
        self, config: LookAheadConfig, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> None:
        super().__init__()
        self.config = config
        size = (config.num_places, config.hidden_size)
        self.places = nn.Parameter(torch.full(size, float("nan"), dtype=dtype, device=device))


def save_look_aheads(net: LookAheads, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors."""
    save_head(net, net.config, directory, model_type=MODEL_TYPE, dtype=dtype)


def load_look_aheads(
    directory: Path, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> LookAheads:
    """Those in `directory`; raises `ModelLoadError` if it is another kind of model."""
    return load_head(
        directory,
        LookAheadConfig,
        lambda config, at: LookAheads(config, dtype, at or device),
        model_type=MODEL_TYPE,
        what="look-ahead embeddings",
    )
