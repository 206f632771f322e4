"""The CTC draft network: one decoder layer over the target's states, slots, and a head over the vocabulary and a blank.

    h_0 .. h_i --(join e(x_{i+1}))-- layer --> g_i -- slots, which see each other -- projection --> V tokens and a blank

Wen et al., "Speculative decoding with CTC-based draft model", 2024, https://arxiv.org/abs/2412.00061. The blank stands
behind the tokens: column V, or V' of a draft that says a part of them. Untrained every slot says what the target said
before, which collapses to one token.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outdraft.drafters.shared.heads.config import StemConfig
from outdraft.drafters.shared.heads.layers import GuessSlots
from outdraft.drafters.shared.heads.net import HeadNet, Projections


@dataclass(frozen=True, slots=True, kw_only=True)
class CtcConfig(StemConfig):
    """The sizes of the layer and of the block over the slots; `num_heads` is the number of slots."""


class CtcNet(HeadNet):
    """The layer, the slots and the projection that they share."""

    kind, what, sizes, joins = "ctc", "a CTC network", CtcConfig, True

    def __init__(
        self, config: CtcConfig, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> None:
        super().__init__(config, dtype, device)
        self.slots = GuessSlots(config, config.num_heads, dtype, self.place, bidirectional=True)
        wide = replace(config, vocab_size=self.blank + 1, draft_vocab_size=0)
        self.projections = Projections(wide, 1, dtype, self.place)

    @property
    def blank(self) -> int:
        """The column of the blank."""
        return int(self.config.draft_vocab_size or self.config.vocab_size)

    def finish(self, g: Tensor) -> Tensor:
        """All slots of a row, side by side: [N, D] -> [N, S * D]."""
        slots: Tensor = self.slots(g)
        return slots.flatten(1)

    def logits(self, states: Tensor, head: int = 0) -> Tensor:
        """Slots [N, D], whichever they are -> [N, V + 1], or [N, V' + 1]."""
        return self.projections.project(states, 0)

    def tokens_of(self, columns: Tensor) -> Tensor:
        """The target's ids of columns that are no blanks, of any shape."""
        return columns if self.vocab is None else self.vocab[columns]

    def begin(self, seed: int) -> None:
        """Every slot is the state itself."""
        super().begin(seed)
        self.slots.begin(seed + 1)
