"""What lies between two passes, learned from a trace: events are handed out, and requests taken in.

    awake    seconds = base + a * requests that came + b * requests that ended     since the pass before
    asleep   seconds from a request's arrival at an idle engine to its first pass

An idle engine takes no time, however long it waits.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from outdraft.bench.replay.costs import least_squares


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """One. `is_awake`: the engine had work all the time."""

    seconds: float
    is_awake: bool
    num_asked: int
    num_ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """Seconds of each kind."""

    base: float = 0.0
    asked: float = 0.0
    ended: float = 0.0
    wake: float = 0.0


def learn_pauses(pauses: Seq[Pause]) -> Pauses:
    """Means; of what no pause shows, nothing is expected."""
    awake = [one for one in pauses if one.is_awake]
    asleep = [one.seconds for one in pauses if not one.is_awake]
    base = _mean([one.seconds for one in awake if not one.num_asked and not one.num_ended])
    more = [(one.num_asked, one.num_ended, one.seconds - base) for one in awake if one.num_asked or one.num_ended]
    counts = np.array(more, dtype=float).reshape(-1, 3)
    asked, ended = map(float, least_squares(counts[:, :2], counts[:, 2]))
    return Pauses(base=base, asked=asked, ended=ended, wake=_mean(asleep))


def _mean(values: Seq[float]) -> float:
    return float(np.mean(values)) if values else 0.0
