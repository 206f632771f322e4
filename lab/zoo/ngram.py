"""The baseline that a neural model has to beat: an interpolated Kneser-Ney n-gram model on the same tokens.

    p_n(w | h) = max(c(hw) - D, 0) / c(h.) + D N(h.) / c(h.) p_{n-1}(w | h'),   D = 0.75

The highest order counts occurrences; lower orders count distinct left neighbours (Kneser and Ney 1995; Chen and Goodman
1999). Counts are sorted arrays of packed keys. Data in: rows of ids [R, T]; data out: nats per token.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
_DISCOUNT = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """Counts of one order: of n-grams, and by context their sum and number of kinds."""

    grams: Keys
    counts: NDArray[np.float64]
    contexts: Keys
    sums: NDArray[np.float64]
    kinds: NDArray[np.float64]


class NgramModel:
    """Kneser-Ney of the given order; vocab_size ** order must fit in 63 bits."""

    def __init__(self, rows: NDArray[np.int64], order: int, vocab_size: int) -> None:
        self.vocab_size, self.order = vocab_size, order
        grams, counts = np.unique(_pack(rows, order, vocab_size), return_counts=True)
        self.orders: list[_Order] = []
        for n in range(order, 0, -1):
            contexts, first, kinds = np.unique(grams // vocab_size, return_index=True, return_counts=True)
            sums = np.add.reduceat(counts, first)
            self.orders.append(
                _Order(
                    grams=grams,
                    counts=counts.astype(float),
                    contexts=contexts,
                    sums=sums.astype(float),
                    kinds=kinds.astype(float),
                )
            )
            if n > 1:  # each distinct n-gram counts once for its suffix
                grams, counts = np.unique(grams % vocab_size ** (n - 1), return_counts=True)

    def nats(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """-log p of every token from position order - 1 on: [R, T - order + 1]."""
        p = np.full(rows.shape[0] * (rows.shape[1] - self.order + 1), 1.0 / self.vocab_size)
        keys = _pack(rows, self.order, self.vocab_size)
        for n, counted in zip(range(1, self.order + 1), reversed(self.orders), strict=True):
            gram = keys % self.vocab_size**n
            count = _look_up(counted.grams, counted.counts, gram)
            total = _look_up(counted.contexts, counted.sums, gram // self.vocab_size)
            kinds = _look_up(counted.contexts, counted.kinds, gram // self.vocab_size)
            known = total > 0
            total = np.where(known, total, 1.0)
            p = np.where(known, np.maximum(count - _DISCOUNT, 0) / total + _DISCOUNT * kinds / total * p, p)
        return -np.log(p).reshape(rows.shape[0], -1)


def _pack(rows: NDArray[np.int64], order: int, vocab_size: int) -> Keys:
    """Every n-gram within a row as one number, the last token in the lowest digit: [R * (T - order + 1)]."""
    keys = np.zeros((rows.shape[0], rows.shape[1] - order + 1), np.int64)
    for i in range(order):
        keys = keys * vocab_size + rows[:, i : i + keys.shape[1]]
    return keys.ravel()


def _look_up(keys: Keys, values: NDArray[np.float64], wanted: Keys) -> NDArray[np.float64]:
    """The value of each wanted key, 0 where there is none."""
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0.0)
