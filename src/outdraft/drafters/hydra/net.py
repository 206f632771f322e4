"""Hydra's heads: a head reads the target's last state and the embeddings of all tokens since.

    head i    x = h + silu(W cat(h, e_0, ..., e_i) + b)     projection i --> token i + 1 after e_0
              h: the target's last state behind its final norm
              e_0: the pending token, e_1 ...: the tokens guessed before

Hydra++ has more layers in a head (x + silu(W x + b) again), and a decoder layer over the last states, whose output
stands for h. Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109. W begins as zeros and a
projection as the target's own head, so that untrained every head says what the target said before.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import StemConfig
from outdraft.drafters.shared.heads.layers import residuals
from outdraft.drafters.shared.heads.net import HeadNet, Projections
from outdraft.nn.activation import rowwise
from outdraft.nn.linear import Linear


@dataclass(frozen=True, slots=True, kw_only=True)
class HydraConfig(StemConfig):
    """The sizes of all heads, of each, and of the layer below them, if there is one."""

    num_layers: int = 1  # of a head: one that mixes, and residual ones behind it
    bypass: bool = False  # A cat(h, e_0, ..., e_i) + a in place of h, as the authors publish it
    projection_bias: bool = False  # the same


class HydraNet(HeadNet):
    """The layer over the states, the mixing matrices and the projections of all heads."""

    kind, what, sizes, reads_tokens = "hydra", "Hydra heads", HydraConfig, True

    def __init__(
        self, config: HydraConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__(config, dtype, device)
        place, width = self.place, config.hidden_size
        self.mixers = nn.ModuleList(
            Linear((head + 2) * width, width, True, dtype, place) for head in range(config.num_heads)
        )
        self.bypasses = nn.ModuleList(
            Linear((head + 2) * width, width, True, dtype, place) for head in range(config.num_heads * config.bypass)
        )
        self.layers = nn.ModuleList(
            residuals(max(0, config.num_layers - 1), width, dtype, place) for _ in range(config.num_heads)
        )
        self.projections = Projections(config, config.num_heads, dtype, place, bias=config.projection_bias)

    def states(self, h: Tensor, head: int, embeds: Seq[Tensor] = ()) -> Tensor:
        """States [N, D] and embeddings [N, D] of the tokens since -> what the next projection reads.

        The states are the target's last ones, normed, or what the layer over them made of them.
        """
        mixer = cast(Linear, self.mixers[head])
        own = h.to(mixer.dtype)
        known = torch.cat([own, *(one.to(own.dtype) for one in embeds)], -1)
        straight = self.bypasses[head](known) if self.config.bypass else own
        out: Tensor = self.layers[head](straight + rowwise(F.silu, mixer(known)))
        return out
