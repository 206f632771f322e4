"""Fit a calibration as tokens are judged, and keep what was counted in a file beside the draft.

Shares of acceptance by confidence are made to rise by pooling neighbours: isotonic regression by pooling adjacent
violators (Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability estimates", 2002,
https://doi.org/10.1145/775047.775151), over bins of equal width in the log odds of the confidence, so that 0.99 and
0.999 are told apart. Every bin leans on what the drafter says until tokens have been seen, and forgets. It may begin
with what `outdraft train calibration` counted:

    {"draft": "3f0c9a...", "temperatures": [0.0, 1.0], "bins": [[0.12, 0.08, 311.0], ...]}

A bin: the mean confidence of its tokens, the share that was accepted, how many they were. Data in: (confidence,
accepted), or a file; data out: a `Calibration`, or shares.
"""

import json
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import exp, isfinite, log
from pathlib import Path
from typing import NamedTuple

from outdraft.core.calibration import Calibration, Knot
from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.read_file import load_json

_WIDTH = 0.5  # of a bin, in log odds
_REACH = 7.0  # log odds of the outermost bins' edges
_BINS = round(2 * _REACH / _WIDTH)
_FORGOTTEN = 1e-3  # tokens of a bin that are forgotten, or never were seen
_LEAN = 2.0  # tokens that the drafter's own word weighs in each bin
UNFITTED = Calibration((Knot(0.0, 0.0), Knot(1.0, 1.0)))
FILE = "calibration.json"


class Share(NamedTuple):
    """What was counted of tokens of one bin."""

    said: float  # their mean confidence
    found: float  # share of them that were accepted
    tokens: float


class Reliability:
    """How often tokens of each confidence were accepted. `memory`: judged tokens after which one counts 1/e.

    `start`: what was counted before, as if it had just been seen; of more than `memory` tokens, as much as of so many.
    """

    def __init__(self, memory: float, start: Seq[Share] = ()) -> None:
        self._keep = exp(-1 / memory)
        self._said = [0.0] * _BINS  # sum of the confidences
        self._accepted = [0.0] * _BINS
        self._count = [0.0] * _BINS
        whole = sum(one.tokens for one in start)
        weight = min(1.0, memory / whole) if whole else 0.0
        for one in start:
            at, count = _bin_of(one.said), one.tokens * weight
            self._said[at] += one.said * count
            self._accepted[at] += one.found * count
            self._count[at] += count

    @property
    def shares(self) -> tuple[Share, ...]:
        """What has been counted, bin by bin, for a caller that keeps it."""
        sums = zip(self._said, self._accepted, self._count, strict=True)
        return tuple(
            Share(said / count, accepted / count, count) for said, accepted, count in sums if count >= _FORGOTTEN
        )

    def add(self, said: float, accepted: bool) -> None:
        """One judged token. A rejected guess's later tokens are not judged, and must not come here."""
        at = _bin_of(said)
        for sums in (self._said, self._accepted, self._count):
            sums[:] = [value * self._keep for value in sums]
        self._said[at] += said
        self._accepted[at] += accepted
        self._count[at] += 1

    @property
    def mean(self) -> float:
        """Share of all judged tokens that were accepted, one of either kind added."""
        return (sum(self._accepted) + 1) / (sum(self._count) + 2)

    def fit(self) -> Calibration:
        """The calibration of all tokens judged so far: bins are pooled until none falls (isotonic regression)."""
        pools: list[tuple[float, float, float]] = []  # (weight, accepted, bins pooled), each share above the last one's
        said = []
        for total, accepted, count in zip(self._said, self._accepted, self._count, strict=True):
            if count < _FORGOTTEN:
                continue
            said.append(total / count)
            pools.append((count + _LEAN, accepted + _LEAN * said[-1], 1))
            while len(pools) > 1 and pools[-2][1] * pools[-1][0] >= pools[-1][1] * pools[-2][0]:
                last, before = pools.pop(), pools.pop()
                pools.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
        found = [accepted / weight for weight, accepted, bins in pools for _ in range(int(bins))]
        if not said:
            return UNFITTED
        return Calibration(tuple(Knot(min(x, 1.0), min(share, 1.0)) for x, share in zip(said, found, strict=True)))


def _bin_of(said: float) -> int:
    inside = min(max(said, 1e-9), 1 - 1e-9)
    return min(max(int((log(inside / (1 - inside)) + _REACH) // _WIDTH), 0), _BINS - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFile:
    """What was counted, of which draft, in which texts."""

    draft: str  # which weights said it (`weights/digest.py`)
    temperatures: tuple[float, ...]
    shares: tuple[Share, ...]

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        told = {"draft": self.draft, "temperatures": self.temperatures, "bins": [list(one) for one in self.shares]}
        with new_file(path) as beside:
            beside.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def read_calibration(path: Path) -> CalibrationFile:
    """Raises `ConfigError` for a file that is missing, damaged, or says what cannot be."""
    try:
        raw = load_json(path)
        shares = tuple(Share(*map(float, one)) for one in raw["bins"])
        found = CalibrationFile(
            draft=str(raw["draft"]), temperatures=tuple(map(float, raw["temperatures"])), shares=shares
        )
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error}): make one with `outdraft train calibration`") from error
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise ConfigError(f"{path} is no calibration ({error!r}): make it again, outdraft train calibration") from error
    _require_possible(shares, path)
    return found


def _require_possible(shares: Seq[Share], path: Path) -> None:
    for one in shares:
        if not (0 <= one.said <= 1 and 0 <= one.found <= 1 and one.tokens >= 0 and isfinite(one.tokens)):
            raise ConfigError(
                f"{path} holds the bin {list(one)}: a confidence and a share are in 0 .. 1, and tokens are counted"
            )
