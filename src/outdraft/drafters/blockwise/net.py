"""Stern's blocks: for each of the next tokens a feed-forward layer over the last state, before the target's own head.

    h (behind the final norm) --+-- h + W relu(U h + b) + c -- the target's head --> the 1st token after the
                                +-- ...                     -- the target's head --> the 2nd     pending one

Stern, Shazeer and Uszkoreit, "Blockwise parallel decoding for deep autoregressive models", 2018,
https://arxiv.org/abs/1811.03115. W begins as zeros, so that untrained every one says what the target said before.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.heads.projections import Projections
from outdraft.models.files.head_files import load_head, save_head
from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear

MODEL_TYPE = "outdraft_blockwise"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockwiseConfig(HeadConfig):
    """How many there are, and how wide each is."""

    inner_size: int  # of the feed-forward layers


class BlockwiseNet(nn.Module):
    """The feed-forward layers, before the target's own head."""

    def __init__(
        self, config: BlockwiseConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__()
        place = torch.device(device or "cpu")
        self.config, width = config, config.hidden_size
        self.up = nn.ModuleList(Linear(width, config.inner_size, True, dtype, place) for _ in range(config.num_heads))
        self.down = nn.ModuleList(Linear(config.inner_size, width, True, dtype, place) for _ in range(config.num_heads))
        self.projections = Projections(config, config.num_heads, dtype, place)

    def states(self, h: Tensor, head: int) -> Tensor:
        """The target's normed last states [N, D] -> what its head reads [N, D]."""
        own = h.to(cast(Linear, self.up[head]).dtype)
        out: Tensor = own + self.down[head](rowwise(F.relu, self.up[head](own)))
        return out

    def logits(self, states: Tensor, head: int) -> Tensor:
        """[N, D] -> [N, V]."""
        return self.projections.project(states, head)


def save_blockwise(net: BlockwiseNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors."""
    save_head(net, net.config, directory, model_type=MODEL_TYPE, dtype=dtype)


def load_blockwise(directory: Path, dtype: torch.dtype, device: torch.device | None = None) -> BlockwiseNet:
    """The layers in `directory`."""
    return load_head(
        directory, BlockwiseConfig, lambda config, place: BlockwiseNet(config, dtype, place or device),
        model_type=MODEL_TYPE, what="blockwise network",
    )  # fmt: skip
