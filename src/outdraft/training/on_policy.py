"""Rows on the draft's own policy: some batches are continued by the draft itself, and the target's distributions are
their labels.

    text         a b c d e f g        with probability `on_policy` a batch is
    on policy    a b c x y z w        x y z w sampled from the draft; the target's distributions label them

So it learns where drafting will bring it. Agarwal et al., "GKD", 2023, https://arxiv.org/abs/2306.13649; Zhou et al.,
"DistillSpec", 2023, https://arxiv.org/abs/2310.08461. Which batch, where it is cut, and the coins are functions of
(seed, step, row).
"""

from dataclasses import replace

import numpy as np
import torch

from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.training.objective import Batches
from outdraft.training.packing import PackedRows
from outdraft.training.writing import write_on

_WHICH, _WHERE = 1, 2  # purposes of random numbers


class OnPolicy:
    """A share of the batches of another source, written on by the draft as it is now."""

    def __init__(self, source: Batches, draft: Decoder, share: float, seed: int) -> None:
        self._source, self._draft, self._share, self._seed = source, draft, share, seed

    def rows(self, step: int, first: int, count: int, length: int) -> PackedRows:
        """Whole batches are of one kind. A row in which nothing counts stays as it is.

        Raises `ConfigError`, at the first step already, for rows that the draft's context does not hold.
        """
        if length > (most := self._draft.config.max_len):
            raise ConfigError(
                f"on_policy={self._share:g}: the draft writes rows of {length} tokens, and its context holds {most}: "
                f"take shorter ones (--loop seq_len={most - 1})"
            )
        made: PackedRows = self._source.rows(step, first, count, length)
        if np.random.default_rng([self._seed, _WHICH, step]).random() >= self._share:
            return made
        coins = [np.random.default_rng([self._seed, _WHERE, step, first + i]) for i in range(count)]
        cuts = [_cut(made, i, coin) for i, coin in enumerate(coins)]
        beginnings = [beginning(made, i, cut) for i, cut in enumerate(cuts)]
        wanted = [length - cut if cut else 0 for cut in cuts]
        uniforms = [torch.from_numpy(coin.random(n)) for coin, n in zip(coins, wanted, strict=True)]
        texts = write_on(self._draft, beginnings, uniforms)
        ids, documents, counts = made.ids.clone(), made.documents.clone(), made.counts.clone()
        for i, (cut, text) in enumerate(zip(cuts, texts, strict=True)):
            if cut:
                stop = cut + len(text)
                ids[i, cut:] = 0
                ids[i, cut:stop] = text
                documents[i, cut:stop] = documents[i, cut - 1]
                documents[i, stop:] = documents[i, cut - 1] + 1  # padding behind an end token
                counts[i, cut - 1 :] = torch.arange(cut - 1, length - 1) < stop - 1
        return replace(made, ids=ids, documents=documents, counts=counts, own=True)


def _cut(rows: PackedRows, row: int, coin: np.random.Generator) -> int:
    """The first token of a row that the draft writes: one that counts, in the first three quarters; 0: none."""
    counted = rows.counts[row].nonzero()[:, 0] + 1
    early = counted[counted <= max(int(counted[0]), rows.ids.shape[1] * 3 // 4)] if len(counted) else counted
    return int(early[coin.integers(len(early))]) if len(early) else 0


def beginning(rows: PackedRows, row: int, cut: int) -> torch.Tensor:
    """What stands before token `cut` in its document [n]."""
    own = rows.documents[row, :cut] == rows.documents[row, max(0, cut - 1)]
    return rows.ids[row, :cut][own]
