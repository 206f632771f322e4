"""What a pass takes, learned from the passes of a trace: how it grows, and what the likest recorded ones took.

    expected = f(rows) + a * decoding sequences + b * nodes + c * rows * cached rows
             + d + e * prompt rows      for prompts alone, decoding rows alone, and both; no number is below 0
    seconds  = expected * (what one of the likest recorded passes took over what was expected of it)

f grows, and is linear between powers of two: a pass over nine rows takes hardly longer than one over a single row. It
is fitted by least squares of relative errors, with a slight preference for a smooth f. Likest are passes of the same
kind (prompts alone, decoding rows alone, both) whose numbers are near; one of them is drawn at random, so that the
machine's noise comes again, for the scheduler reacts to it. So where passes like this one were recorded, they say what
it takes, and the formula says only what lies between and beyond them.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from outdraft.options.errors import ConfigError

Array = NDArray[np.float64]
_KNOTS = np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048], dtype=float)
_SMOOTH = 1e-3  # of the weight of the passes
_ROUNDS = 4
_SWEEPS = 400
_FEWEST = 20  # passes
_LIKEST = 16  # passes, or more that are as near, of which one is drawn
_NEAR = 0.15  # octaves beyond the nearest at which a pass is drawn a third as often
_NOISE = 0.5, 2.0  # of the expected seconds: what is further off was a pause of the machine, and is added


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a pass computes."""

    num_decoding: int  # sequences that read no prompt in it
    num_nodes: int  # rows of drafts, pending tokens included
    num_rows: int  # those, and prompt rows
    context: int  # sum over rows of how many rows their sequence had in the cache

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether a request decodes, and whether a request reads."""
        return self.num_decoding > 0, self.num_rows - self.num_nodes > 0


def work_of(rows: Iterable[Seq[int]]) -> Work:
    """Of a pass, from each sequence's rows: of its prompt, of its draft, and those that the cache held before."""
    num_decoding = num_nodes = num_rows = context = 0
    for certain, nodes, before in rows:
        own = certain + nodes
        num_decoding, num_nodes, num_rows = num_decoding + (not certain), num_nodes + nodes, num_rows + own
        context += own * (before + own // 2)
    return Work(num_decoding=num_decoding, num_nodes=num_nodes, num_rows=num_rows, context=context)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPass:
    """A recorded one."""

    work: Work
    seconds: float


class LearnedCosts:
    """Raises `ConfigError` for a trace of hardly any passes."""

    def __init__(self, passes: Seq[RecordedPass]) -> None:
        if len(passes) < _FEWEST:
            raise ConfigError(
                f"the trace has {len(passes)} passes of the model, and a replay needs {_FEWEST}: record more requests, "
                "or requests that write more"
            )
        seconds = np.array([one.seconds for one in passes])
        features = np.array([_features(one.work) for one in passes])
        self._weights = _fit(features, np.maximum(seconds, 1e-9))
        expected = np.maximum(features @ self._weights, 1e-9)
        self._factors = np.clip(seconds / expected, *_NOISE)
        self._stalls = np.maximum(0.0, seconds - expected * self._factors)
        places = np.array([_place(one.work) for one in passes])
        kinds = [one.work.kind for one in passes]
        self._kinds = {kind: np.array([i for i, one in enumerate(kinds) if one == kind]) for kind in set(kinds)}
        self._places = places
        self._known: dict[Work, tuple[Array, NDArray[np.intp]]] = {}

    def expected(self, work: Work) -> float:
        """By the formula alone."""
        return float(_features(work) @ self._weights)

    def seconds(self, work: Work, random: Random) -> float:
        """Of a pass, as the machine's noise would have it."""
        chances, likest = self._likest(work)
        one = likest[min(int(np.searchsorted(chances, random.random())), len(likest) - 1)]
        return float(self.expected(work) * self._factors[one] + self._stalls[one])

    def _likest(self, work: Work) -> tuple[Array, NDArray[np.intp]]:
        """Recorded passes, and the running sum of the probabilities with which they are drawn."""
        if (found := self._known.get(work)) is None:
            own = self._kinds.get(work.kind, np.arange(len(self._places)))
            distances = np.linalg.norm(self._places[own] - _place(work), axis=1)
            farthest = np.sort(distances)[min(_LIKEST, len(own)) - 1]
            near = np.flatnonzero(distances <= farthest)  # all of those that are as near
            weights = np.exp((distances.min() - distances[near]) / _NEAR)
            found = self._known[work] = np.cumsum(weights / weights.sum()), own[near]
        return found


def _place(work: Work) -> Array:
    """Where a pass stands among others, in octaves."""
    numbers = (work.num_rows - work.num_nodes, work.num_nodes, work.num_decoding, work.context / max(1, work.num_rows))
    return np.array([1.0, 1.0, 1.0, 0.2]) * np.log2(1.0 + np.array(numbers))


def _features(work: Work) -> Array:
    rows = float(work.num_rows)
    pieces = np.clip(rows - _KNOTS[:-1], 0.0, np.diff(_KNOTS))
    pieces[-1] += max(0.0, rows - _KNOTS[-1])
    read, decodes, reads = rows - work.num_nodes, *work.kind
    of_kind = [decodes, reads and not decodes, read * (not decodes), reads and decodes, read * decodes]
    more = [work.num_decoding, work.num_nodes, work.context / 1e3, *map(float, of_kind)]
    return np.concatenate([pieces, more])


def _fit(features: Array, seconds: Array) -> Array:
    """Weights, none below 0, for the least sum of squared relative errors."""
    num_pieces = len(_KNOTS) - 1
    bends = np.zeros((num_pieces - 1, features.shape[1]))
    for i in range(1, num_pieces - 1):  # how far two neighbouring slopes are apart; the first piece is the base
        bends[i, i], bends[i, i + 1] = -1.0, 1.0
    found = np.full(features.shape[1], 1e-9)
    expected = seconds
    for _ in range(_ROUNDS):  # by the errors over what is expected, in which a pause of the machine counts little
        wanted = np.clip(seconds / expected, *_NOISE)
        weight = np.sqrt(_SMOOTH * len(seconds)) / float(np.median(expected))
        rows = np.concatenate([features / expected[:, None], weight * bends])
        found = least_squares(rows, np.concatenate([wanted, np.zeros(len(bends))]))
        expected = np.maximum(features @ found, 1e-9)
    return found


def least_squares(rows: Array, wanted: Array) -> Array:
    """No weight below 0; by coordinate descent."""
    scale = np.maximum(np.linalg.norm(rows, axis=0), 1e-12)
    rows = rows / scale
    gram, target = rows.T @ rows, rows.T @ wanted
    gram += 1e-9 * np.eye(len(gram))
    found = np.zeros(len(gram))
    for _ in range(_SWEEPS):
        for i in range(len(found)):
            found[i] = max(0.0, found[i] + (target[i] - gram[i] @ found) / gram[i, i])
    return np.asarray(found / scale)
