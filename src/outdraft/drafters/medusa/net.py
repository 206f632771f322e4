"""Medusa's heads: small residual networks on the target's last state, each with a projection to the vocabulary.

    h (behind the final norm) ---------+-- x + silu(W x + b), so many times -- projection 0 --> the 1st token after the
                                       +-- ...                              -- projection 1 --> the 2nd     pending one

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774. W begins as zeros and a projection as the target's own
head, so that untrained every head says what the target said before.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.heads.layers import residuals
from outdraft.drafters.shared.heads.net import HeadNet, Projections


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaConfig(HeadConfig):
    """The sizes of all heads, and of each."""

    num_layers: int = 1  # residual layers of a head


class MedusaNet(HeadNet):
    """The residual layers and the projections of all heads."""

    kind, what, sizes = "medusa", "Medusa heads", MedusaConfig

    def __init__(
        self, config: MedusaConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__(config, dtype, device)
        width, self._dtype = config.hidden_size, dtype
        layers = (residuals(config.num_layers, width, dtype, self.place) for _ in range(config.num_heads))
        self.layers = nn.ModuleList(layers)
        self.projections = Projections(config, config.num_heads, dtype, self.place)

    def states(self, h: Tensor, head: int, embeds: Seq[Tensor] = ()) -> Tensor:
        """The target's normed last states [N, D] -> what projection `head` reads [N, D]."""
        own = next((one.dtype for one in self.parameters()), self._dtype)  # packed for drafting it has none
        x: Tensor = self.layers[head](h.to(own))
        return x
