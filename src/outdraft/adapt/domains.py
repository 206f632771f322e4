"""Which kind of request a prompt is, cheaply: clusters of prompts by the tokens in them, found as they come.

Each prompt is a vector of counts of its ids, hashed to 2,048 places; a place counts the less, the more prompts have it
(what a chat template writes before every prompt counts nothing). It belongs to the nearest of a few centres by the
cosine, or begins a new one where it is far from all. Names are "1", "2", ... in the order in which they were met.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_PLACES = 2048
_NEAR = 0.1  # cosine from which on a prompt belongs to a centre
_LONGEST = 50  # prompts after which a centre follows new ones as it does now
_MOST_IDS = 1024  # of a prompt, its last ones

Vector = NDArray[np.float64]


@dataclass(slots=True)
class Centre:
    """The mean direction of its prompts."""

    num: int
    vector: Vector  # of length 1

    def add(self, vector: Vector) -> None:
        """A further prompt of this direction."""
        moved = self.vector * min(self.num, _LONGEST) + vector
        self.vector, self.num = moved / np.linalg.norm(moved), self.num + 1


class Domains:
    """At most `most` of them; later kinds join the nearest."""

    def __init__(self, most: int = 6) -> None:
        self._most = most
        self._met = np.zeros(_PLACES)  # prompts that have a place
        self._num = 0
        self._centres: list[Centre] = []

    def of(self, prompt: Seq[int]) -> str:
        """The domain of a prompt, which is learned from."""
        vector = self._vector(prompt)
        near = [float(vector @ one.vector) for one in self._centres]
        if near and (max(near) >= _NEAR or len(near) == self._most):
            best = int(np.argmax(near))
            if vector.any():
                self._centres[best].add(vector)
            return str(best + 1)
        self._centres.append(Centre(1, vector))
        return str(len(self._centres))

    def _vector(self, prompt: Seq[int]) -> Vector:
        """[2048], of length 1; zeros for a prompt in which nothing is unusual."""
        places = np.asarray(prompt[-_MOST_IDS:], np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(53)
        counts = np.bincount(places.astype(np.int64), minlength=_PLACES).astype(np.float64)
        self._num, self._met = self._num + 1, self._met + (counts > 0)
        vector = np.sqrt(counts) * np.log((self._num + 1) / (self._met + 0.5)).clip(0)
        norm = float(np.linalg.norm(vector))
        return np.asarray(vector / norm if norm else vector)
