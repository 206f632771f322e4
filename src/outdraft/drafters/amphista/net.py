"""Amphista's network: two layers that adapt the target's states, then slots that see each other, then heads.

    h_0 .. h_i -- layer --(join e(x_{i+1}))-- layer --> g_i -- K slots, one attention block --> head k --> x_{i+2+k}

Li et al., "Amphista", 2024, https://arxiv.org/abs/2406.13170. Untrained every head says what the target said before.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.drafters.shared.heads.config import StemConfig
from outdraft.drafters.shared.heads.layers import GuessSlots
from outdraft.drafters.shared.heads.net import HeadNet, Projections


@dataclass(frozen=True, slots=True, kw_only=True)
class AmphistaConfig(StemConfig):
    """The sizes of the layers and of the block over the slots, which are the same."""

    bidirectional: bool = True  # False: every slot sees itself alone


class AmphistaNet(HeadNet):
    """The adapting layers, the slots and the projections."""

    kind, what, sizes, joins = "amphista", "Amphista heads", AmphistaConfig, True

    def __init__(
        self, config: AmphistaConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__(config, dtype, device)
        self.slots = GuessSlots(config, config.num_heads, dtype, self.place, bidirectional=config.bidirectional)
        self.projections = Projections(config, config.num_heads, dtype, self.place)

    def finish(self, g: Tensor) -> Tensor:
        """All slots of a row, side by side: [N, D] -> [N, K * D]."""
        slots: Tensor = self.slots(g)
        return slots.flatten(1)

    def states(self, h: Tensor, head: int, embeds: Seq[Tensor] = ()) -> Tensor:
        """One of them: [N, K * D] -> [N, D]."""
        return h.view(-1, self.config.num_heads, self.config.hidden_size)[:, head]

    def begin(self, seed: int) -> None:
        """Every slot is the state itself."""
        super().begin(seed)
        self.slots.begin(seed + 1)
