"""Stern's blocks: for each of the next tokens a feed-forward layer over the last state, before the target's own head.

    h (behind the final norm) --+-- h + W relu(U h + b) + c -- the target's head --> the 1st token after the
                                +-- ...                     -- the target's head --> the 2nd     pending one

Stern, Shazeer and Uszkoreit, "Blockwise parallel decoding for deep autoregressive models", 2018,
https://arxiv.org/abs/1811.03115. W begins as zeros, so that untrained every one says what the target said before.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.heads.net import HeadNet, Projections
from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockwiseConfig(HeadConfig):
    """How many there are, and how wide each is."""

    inner_size: int  # of the feed-forward layers

    def wider(self, width: int, depth: int, scale: float) -> Self:
        """The layers grow too."""
        return replace(HeadConfig.wider(self, width, depth, scale), inner_size=self.inner_size * width)


class BlockwiseNet(HeadNet):
    """The feed-forward layers, before the target's own head."""

    kind, what, sizes = "blockwise", "blockwise layers", BlockwiseConfig

    def __init__(
        self, config: BlockwiseConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__(config, dtype, device)
        place, width = self.place, config.hidden_size
        self.up = nn.ModuleList(Linear(width, config.inner_size, True, dtype, place) for _ in range(config.num_heads))
        self.down = nn.ModuleList(Linear(config.inner_size, width, True, dtype, place) for _ in range(config.num_heads))
        self.projections = Projections(config, config.num_heads, dtype, place)

    def states(self, h: Tensor, head: int, embeds: Seq[Tensor] = ()) -> Tensor:
        """The target's normed last states [N, D] -> what its head reads [N, D]."""
        own = h.to(cast(Linear, self.up[head]).dtype)
        out: Tensor = own + self.down[head](rowwise(F.relu, self.up[head](own)))
        return out

    def begin(self, seed: int) -> None:
        """What the layers add to the state begins as zeros, from noise."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, weight in self.up.named_parameters():
                if name.endswith("weight"):
                    weight.copy_(torch.randn(weight.shape, generator=generator) * weight.shape[1] ** -0.5)

    def side_by_side(self, matrix: Tensor) -> int:
        """One state, or one inner layer."""
        return 1
