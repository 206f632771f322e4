"""Tables of the model's predictions: the best successors of each single token, and the best tokens overall.

    bigram   ids [V, k], probs [V, k]    the k best of p(. | x), by one pass over the text "x" for each token x
    unigram  probs [V]                   the mean of these distributions over all x

Data in: a function that scores short texts; data out: the tables, made piece by piece so that a long build can stop and
go on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Score = Callable[[Tensor], Tensor]  # ids [n, T] -> logits [n, V] after each text


@dataclass(slots=True, kw_only=True)
class Tables:
    """Rows below `done` are filled."""

    ids: NDArray[np.int32]  # [V, k] best first
    probs: NDArray[np.float32]  # [V, k]
    total: NDArray[np.float64]  # [V] sum of the distributions so far
    done: int = 0

    @property
    def complete(self) -> bool:
        """Whether every token was scored."""
        return self.done == len(self.ids)


def empty_tables(vocab_size: int, width: int) -> Tables:
    """Tables of the right shape in which nothing is filled yet."""
    width = min(width, vocab_size)
    return Tables(
        ids=np.zeros((vocab_size, width), np.int32),
        probs=np.zeros((vocab_size, width), np.float32),
        total=np.zeros(vocab_size, np.float64),
    )


def fill(tables: Tables, score: Score, batch: int = 64) -> Iterator[int]:
    """Score the tokens that are left, `batch` a pass; yields how many are done after each pass."""
    while not tables.complete:
        rows = range(tables.done, min(tables.done + batch, len(tables.ids)))
        distributions = torch.softmax(score(torch.tensor(rows)[:, None]).double(), -1)
        best = distributions.topk(tables.ids.shape[1], -1)
        tables.ids[rows.start : rows.stop] = best.indices.cpu().numpy()
        tables.probs[rows.start : rows.stop] = best.values.cpu().numpy()
        tables.total += distributions.sum(0).cpu().numpy()
        tables.done = rows.stop
        yield tables.done
