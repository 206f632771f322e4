"""Examples packed into rows of T + 1 tokens, as a pure function of (seed, row): any row can be made at any time.

    epoch 0    examples in a random order, laid end to end    | a a a b b | b b c c c | c d d d d | ...
                                                                 row 0       row 1       row 2

Every token is guessed once an epoch: a row's last token is the next one's first. An example that crosses the edge goes
on in the next row, where it sees nothing of what came before. The next epoch has another order.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outdraft.core.learner import Moment
from outdraft.options.errors import ConfigError
from outdraft.training.config import Schedule
from outdraft.training.corpus import TrainingCorpus

_PRIME = 1_000_003  # between the seeds of runs and of steps
_LEAST = 4  # tokens of the shortest row, so that a network of any depth has something to look at


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRows:
    """Rows of a batch, each filled with examples behind each other."""

    ids: Tensor  # [B, T + 1] int64
    documents: Tensor  # [B, T + 1] int64, rising from 0
    counts: Tensor  # [B, T] bool: the next token is of the same example, and to be guessed
    moment: Moment | None = None  # in training; None: an exam
    own: bool = False  # partly written by the draft, so that the same never come again


class Packing:
    """The rows of a corpus. Reads any of them; holds one epoch's order at a time."""

    def __init__(self, corpus: TrainingCorpus, seed: int) -> None:
        self.corpus, self.seed = corpus, seed
        self._epoch, self._order = -1, np.zeros(0, np.int64)
        self._ends = np.zeros(0, np.int64)  # of each example in this order

    def rows(self, first: int, count: int, length: int) -> PackedRows:
        """Rows first..first + count, each of `length` + 1 tokens."""
        made = [self._row(first + i, length) for i in range(count)]
        ids, documents, counts = (torch.from_numpy(np.stack(part)) for part in zip(*made, strict=True))
        return PackedRows(ids=ids, documents=documents, counts=counts)

    def an_epoch(self, length: int) -> int:
        """Rows of `length` + 1 tokens that hold every example once."""
        return max(1, (len(self.corpus.ids) - 1) // length)

    def _row(self, row: int, length: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        total, an_epoch = len(self.corpus.ids), self.an_epoch(length)
        self._turn(row // an_epoch)
        start = edge = row % an_epoch * length
        stop = min(start + length + 1, total)
        ids = np.zeros(length + 1, np.int64)
        documents, counts = np.zeros(length + 1, np.int64), np.zeros(length + 1, np.bool_)
        at, number = int(np.searchsorted(self._ends, start, side="right")), 0
        while start < stop:
            example, end = self._order[at], int(self._ends[at])
            first = int(self.corpus.starts[example + 1]) - (end - start)
            size = min(end, stop) - start
            into = start - edge
            ids[into : into + size] = self.corpus.ids[first : first + size]
            counts[into : into + size] = self.corpus.counts[first : first + size]
            documents[into : into + size] = number
            start, at, number = start + size, at + 1, number + 1
        documents[stop - edge :] = number  # padding, if the whole corpus is shorter than a row
        same = documents[1:] == documents[:-1]
        return ids, documents, counts[1:] & same

    def _turn(self, epoch: int) -> None:
        """To another epoch's order."""
        if epoch != self._epoch:
            rng = np.random.default_rng([self.seed, epoch])
            self._epoch, self._order = epoch, rng.permutation(self.corpus.num_examples)
            self._ends = np.cumsum(np.diff(self.corpus.starts)[self._order])


class PackedBatches:
    """The packed rows of a corpus, step by step. `schedule`: of the run, which says where it ends."""

    def __init__(self, packing: Packing, batch_tokens: int, schedule: Schedule, same_order: bool = False) -> None:
        self._packing, self._batch_tokens, self._schedule = packing, batch_tokens, schedule
        self._same_order = same_order

    def rows(self, step: int, first: int, count: int, length: int) -> PackedRows:
        """`length`: of a row, the token behind its last one included."""
        a_step = max(1, self._batch_tokens // (length - 1))
        place = step
        if self._same_order:
            place %= max(1, self._packing.an_epoch(length - 1) // a_step)
        made = self._packing.rows(place * a_step + first, count, length - 1)
        seed = (self._packing.seed * _PRIME + step) % (1 << 63)
        return replace(made, moment=Moment(step=step, steps=self._schedule.end, seed=seed, first=first))


def answer_rows(texts: Seq[tuple[Seq[int], Seq[int]]]) -> PackedRows:
    """Prompts and their answers, one a row [B, T + 1]; what is behind an answer's first token counts, as in rounds."""
    width = max(len(prompt) + len(answer) for prompt, answer in texts)
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    documents = torch.ones_like(ids)  # 0: the text, 1: padding
    counts = torch.zeros(len(texts), width - 1, dtype=torch.bool)
    for row, (prompt, answer) in enumerate(texts):
        whole = [*prompt, *answer]
        ids[row, : len(whole)] = torch.tensor(whole)
        documents[row, : len(whole)] = 0
        counts[row, len(prompt) : len(whole) - 1] = True
    return PackedRows(ids=ids, documents=documents, counts=counts)


def example_rows(corpus: TrainingCorpus, most: int, length: int, micro_tokens: int) -> list[PackedRows]:
    """The first examples in which something counts, one a row, in batches of about `micro_tokens`.

    Of a longer one a window of `length` + 1 tokens that ends with its first counted ones, or holds them. Raises
    `ConfigError` if nothing counts anywhere.
    """
    cut = [window for window in (_window(corpus, n, length) for n in range(corpus.num_examples)) if window is not None]
    if not cut:
        raise ConfigError("no held-out example has anything to guess: hold out more of them, or name others (--valid)")
    a_batch, made = max(1, micro_tokens // length), []
    for first in range(0, min(most, len(cut)), a_batch):
        chosen = cut[first : min(first + a_batch, most)]
        width = max(_LEAST, *(stop - start for start, stop in chosen))
        ids = torch.zeros(len(chosen), width, dtype=torch.long)
        documents, counts = torch.ones_like(ids), torch.zeros_like(ids, dtype=torch.bool)  # 1: padding
        for row, (start, stop) in enumerate(chosen):
            size = stop - start
            ids[row, :size] = torch.from_numpy(corpus.ids[start:stop].astype(np.int64))
            counts[row, :size] = torch.from_numpy(np.array(corpus.counts[start:stop]))
            documents[row, :size] = 0
        made.append(PackedRows(ids=ids, documents=documents, counts=counts[:, 1:] & (documents[:, 1:] == 0)))
    return made


def _window(corpus: TrainingCorpus, example: int, length: int) -> tuple[int, int] | None:
    """First and last place in the stream; None where nothing counts behind the first token."""
    start, stop = int(corpus.starts[example]), int(corpus.starts[example + 1])
    counted = np.flatnonzero(corpus.counts[start + 1 : stop])
    if not len(counted):
        return None
    begin = max(start, start + int(counted[0]) - length // 2)  # half of it before the answer, where it is far
    return (
        (start, min(stop, start + length + 1)) if counted[0] < length // 2 else (begin, min(stop, begin + length + 1))
    )
