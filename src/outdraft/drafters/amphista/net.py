"""Amphista's network: two layers that adapt the target's states, then slots that see each other, then heads.

    h_0 .. h_i -- layer --(join e(x_{i+1}))-- layer --> g_i -- K slots, one attention block --> head k --> x_{i+2+k}

Li et al., "Amphista", 2024, https://arxiv.org/abs/2406.13170. Untrained every head says what the target said before.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.heads.projections import Projections
from outdraft.drafters.shared.heads.slots import Slots
from outdraft.drafters.shared.heads.stem import Stem, StemConfig
from outdraft.models.files.head_files import load_head, save_head

MODEL_TYPE = "outdraft_amphista"


@dataclass(frozen=True, slots=True, kw_only=True)
class AmphistaConfig(StemConfig):
    """The sizes of the layers and of the block over the slots, which are the same."""

    bidirectional: bool = True  # False: every slot sees itself alone


class AmphistaNet(nn.Module):
    """The adapting layers, the slots and the projections."""

    def __init__(
        self, config: AmphistaConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        place = torch.device(device or "cpu")
        self.config = config
        self.stem = Stem(config, dtype, place, told=(config.num_stem_layers - 1,))
        self.slots = Slots(config, config.num_heads, dtype, place, bidirectional=config.bidirectional)
        self.projections = Projections(config, config.num_heads, dtype, place)

    def logits(self, states: Tensor, head: int) -> Tensor:
        """Slot `head` [N, D] -> [N, V]."""
        return self.projections.project(states, head)


def save_amphista(net: AmphistaNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors."""
    save_head(net, net.config, directory, model_type=MODEL_TYPE, dtype=dtype)


def load_amphista(directory: Path, dtype: torch.dtype, device: torch.device | None = None) -> AmphistaNet:
    """The network in `directory`."""
    return load_head(
        directory, AmphistaConfig, lambda config, place: AmphistaNet(config, dtype, place or device),
        model_type=MODEL_TYPE, what="Amphista network",
    )  # fmt: skip
