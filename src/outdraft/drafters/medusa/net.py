"""Medusa's heads: small residual networks on the target's last state, each with a projection to the vocabulary.

    h (behind the final norm) ---------+-- x + silu(W x + b), so many times -- projection 0 --> the 1st token after the
                                       +-- ...                              -- projection 1 --> the 2nd     pending one

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774. W begins as zeros and a projection as the target's own
head, so that untrained every head says what the target said before.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.heads.projections import Projections
from outdraft.drafters.shared.heads.residual import residuals
from outdraft.models.files.head_files import load_head, save_head

MODEL_TYPE = "outdraft_medusa"


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaConfig(HeadConfig):
    """The sizes of all heads, and of each."""

    num_layers: int = 1  # residual layers of a head


class MedusaNet(nn.Module):
    """The residual layers and the projections of all heads."""

    def __init__(
        self, config: MedusaConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        place = torch.device(device or "cpu")
        self.config, self._dtype = config, dtype
        width = config.hidden_size
        self.layers = nn.ModuleList(residuals(config.num_layers, width, dtype, place) for _ in range(config.num_heads))
        self.projections = Projections(config, config.num_heads, dtype, place)

    def states(self, h: Tensor, head: int) -> Tensor:
        """The target's normed last states [N, D] -> what projection `head` reads [N, D]."""
        own = next((one.dtype for one in self.parameters()), self._dtype)  # packed for drafting it has none
        x: Tensor = self.layers[head](h.to(own))
        return x

    def logits(self, states: Tensor, head: int) -> Tensor:
        """[N, D] -> [N, V]."""
        return self.projections.project(states, head)


def save_medusa(net: MedusaNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors."""
    save_head(net, net.config, directory, model_type=MODEL_TYPE, dtype=dtype)


def load_medusa(directory: Path, dtype: torch.dtype, device: torch.device | None = None) -> MedusaNet:
    """The heads in `directory`."""
    return load_head(
        directory, MedusaConfig, lambda config, place: MedusaNet(config, dtype, place or device),
        model_type=MODEL_TYPE, what="Medusa network",
    )  # fmt: skip
