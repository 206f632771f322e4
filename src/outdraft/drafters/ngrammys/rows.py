"""Rows that the model's tables give: a likely first token, its best successor, that one's best successor, ...

    last    p(t1 | last) = 0.2     p(t2 | t1) = 0.5     p(t3 | t2) = 0.1
    row     t1                     t2                   t3                   worth 0.2 -> 0.1 -> 0.01

A row ends where it is worth less than a bound: what stands behind would cost a node and hardly ever be right. Data in:
full tables and the last token; data out: continuations, best first.
"""

from collections.abc import Iterator

import numpy as np

from outdraft.drafters.ngrammys.tables import Tables
from outdraft.drafters.shared.look_up.span_index import Sequel


class TableRows:
    """`everywhere`: rows begin with the tokens likely after any other, not with those after the last one."""

    __slots__ = ("_best", "_ids", "_min_prob", "_probs", "_sure")

    def __init__(self, tables: Tables, *, everywhere: bool, min_prob: float) -> None:
        self._ids, self._probs = tables.ids, tables.probs
        if everywhere:
            size, width = tables.ids.shape
            best = np.argsort(-tables.total, kind="stable")[:width]
            self._ids = np.broadcast_to(best, (size, width))
            self._probs = np.broadcast_to(tables.total[best] / size, (size, width))
        # `.data`, a memoryview, gives plain numbers, several times quicker than an array.
        self._best = np.ascontiguousarray(tables.ids[:, 0]).data
        self._sure = np.ascontiguousarray(tables.probs[:, 0]).data
        self._min_prob = min_prob

    def after(self, last: int, depth: int) -> Iterator[Sequel]:
        """Rows of at most `depth` tokens; each weighs the probability of its first token."""
        for first, prob in zip(map(int, self._ids[last]), map(float, self._probs[last]), strict=True):
            yield Sequel(self._walk(first, prob, depth), prob)

    def _walk(self, token: int, worth: float, depth: int) -> list[int]:
        path = [token]
        while len(path) < depth:
            worth *= self._sure[token]
            if worth < self._min_prob:
                break
            token = self._best[token]
            path.append(token)
        return path
