"""What a pass takes, learned from the passes of a trace.

    seconds = f(rows) + a * decoding sequences + b * rows * cached rows

f is piecewise linear between powers of two, for a pass over nine rows takes hardly longer than one over a single row;
the second term is mostly drafting, the third attention. Least squares over all passes, with a slight preference for a
smooth f, so that numbers of rows that never came lie between their neighbours. What is left over, the noise of the
machine, is drawn again at random for every pass, for the scheduler reacts to it.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outdraft.bench.replay.trace import Pass
from outdraft.core.errors import ConfigError

_KNOTS = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048], dtype=float)
_SMOOTH = 0.02  # of the weight of the passes
_FEWEST = 20  # passes
_NOISE = 0.3, 4.0  # of the expected seconds: what is further off was a pause of the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """`weights`: f at the knots, a, b. `noise`: what passes took over what they should have taken; its mean is 1.

    pause: seconds between two passes of a busy engine.
    """

    weights: NDArray[np.float64]
    noise: NDArray[np.float64]
    pause: float

    def seconds(self, num_decoding: int, num_rows: int, context: int) -> float:
        """Of a pass on a quiet machine."""
        return max(0.0, float(_features(num_decoding, num_rows, context) @ self.weights))


def learn_costs(passes: Seq[Pass]) -> Costs:
    """Raises `ConfigError` for a trace of hardly any passes."""
    if len(passes) < _FEWEST:
        raise ConfigError(
            f"the trace has {len(passes)} passes: record at least {_FEWEST}, or nothing can be said of what passes take"
        )
    features = np.array([_features(one.num_decoding, one.num_rows, one.context) for one in passes])
    seconds = np.array([one.seconds for one in passes])
    bends = np.zeros((len(_KNOTS) - 2, features.shape[1]))
    for i in range(len(bends)):  # how far f at a knot is from the line between its neighbours
        share = (_KNOTS[i + 1] - _KNOTS[i]) / (_KNOTS[i + 2] - _KNOTS[i])
        bends[i, i : i + 3] = share - 1, 1, -share
    weight = np.sqrt(_SMOOTH * len(passes) / len(bends))
    weights = np.linalg.lstsq(
        np.concatenate([features, weight * bends]), np.concatenate([seconds, np.zeros(len(bends))]), rcond=None
    )[0]
    weights[-2:] = np.maximum(weights[-2:], 0.0)
    weights[:-2] = np.maximum.accumulate(np.maximum(weights[:-2], 0.5 * seconds.min()))  # more rows take no less time
    expected = features @ weights
    noise = np.clip(seconds / expected, _NOISE[0], _NOISE[1])
    pauses = [one.before for one in passes if one.before is not None]
    return Costs(
        weights=weights * (seconds.sum() / expected.sum()), noise=noise / np.average(noise, weights=expected),
        pause=float(np.mean(pauses)) if pauses else 0.0,
    )  # fmt: skip


def _features(num_decoding: int, num_rows: int, context: int) -> NDArray[np.float64]:
    hats = np.zeros(len(_KNOTS) + 2)
    rows = float(np.clip(num_rows, _KNOTS[0], _KNOTS[-1]))
    at = min(int(np.searchsorted(_KNOTS, rows, side="right")) - 1, len(_KNOTS) - 2)
    share = (rows - _KNOTS[at]) / (_KNOTS[at + 1] - _KNOTS[at])
    hats[at], hats[at + 1] = 1 - share, share
    hats[-2], hats[-1] = num_decoding, context / 1e6
    return hats
