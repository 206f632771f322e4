"""P-EAGLE's network: EAGLE-3's layers, and what they read in the place of tokens that are not there yet.

    pair i          (states of i, token i + 1)      guesses token i + 2
    mask row i + d  (mask_hidden, mask token)       guesses token i + d + 2; it sees the pairs up to i, and the mask
                                                    rows before it

Hui et al., "P-EAGLE: parallel-drafting EAGLE with scalable training", 2026, https://arxiv.org/abs/2602.01469.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.features.fused.config import FusedConfig
from outdraft.drafters.shared.features.fused.files import MASK
from outdraft.drafters.shared.features.fused.net import FusedNet, Lent, entries_of
from outdraft.models.families.shared.naming import Entry


class MaskedNet(FusedNet):
    """mask_hidden [1, 1, k * Dt]: the states of k taps that stand for those of a token that the target has not read.

    num_depths: tokens that it guesses in one pass, the first of them by a pair.
    """

    def __init__(
        self,
        config: FusedConfig,
        mask_token_id: int,
        num_depths: int,
        dtype: torch.dtype,
        device: torch.device,
        vocab: Tensor | None = None,
        lent: Lent | None = None,
    ) -> None:
        super().__init__(config, dtype, device, vocab, lent)
        self.mask_token_id, self.num_depths = mask_token_id, num_depths
        size = (1, 1, len(config.taps) * config.target_hidden_size)
        self.mask_hidden = nn.Parameter(torch.full(size, float("nan"), dtype=dtype, device=device))

    @property
    def mask_taps(self) -> tuple[Tensor, ...]:
        """What stands for the states, one [1, Dt] a tap."""
        return self.mask_hidden[0].chunk(len(self.config.taps), -1)


def masked_entries(config: FusedConfig) -> Iterable[Entry]:
    """Which of our parameters each published tensor is."""
    yield Entry(ours=MASK, theirs=(MASK,))
    yield from entries_of(config)
