"""Rounds of a draft whose acceptance and own probability are known at every position, with a fault planted or none."""

from dataclasses import dataclass

import numpy as np

from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.examined import Bin, Examined
from outdraft.adapt.kinds import Kind
from outdraft.adapt.observe import Observed

RATES = np.array([0.80, 0.78, 0.77, 0.76, 0.75, 0.74, 0.73, 0.72])
RECORD = AcceptanceRecord(acceptance=tuple(RATES.tolist()), confidence=tuple(RATES.tolist()))
BARE = AcceptanceRecord(acceptance=tuple(RATES.tolist()))
FALL = {Kind.ANCHOR: 0.18, Kind.LONG_RANGE: 0.2, Kind.UNIFORM: 0.15, Kind.MISMATCH: 0.25, Kind.DRIFT: 0.15}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """n rounds of guesses of depth k."""

    accepted: np.ndarray  # [n] length of the accepted path
    sure: np.ndarray  # [n, k] own probabilities

    def each(self):
        """(accepted, own probabilities of the examined nodes) of each round."""
        depth = self.sure.shape[1]
        for accepted, sure in zip(self.accepted.tolist(), self.sure.tolist(), strict=True):
            yield accepted, sure[: min(accepted + 1, depth)]

    def last(self, rounds: int) -> "Rounds":
        """Without the rounds before."""
        return Rounds(accepted=self.accepted[-rounds:], sure=self.sure[-rounds:])

    def observed(self) -> Observed:
        """What `Observed` would hold of them, with nothing recent, but made of whole blocks at once."""
        made, depth = Observed(), self.sure.shape[1]
        at = np.arange(depth)
        reached, kept = at <= self.accepted[:, None], at < self.accepted[:, None]
        size = made.block * max(1, 2 ** int(np.ceil(np.log2(len(reached) / made.block / made.most_blocks))))
        for start in range(0, len(reached), size):
            own = slice(start, start + size)
            columns = (reached[own].sum(0), kept[own].sum(0), (self.sure[own] * reached[own]).sum(0))
            n, a, sure = (column[: reached[own].any(0).sum()].astype(float).tolist() for column in columns)
            made.blocks.append(
                Examined(
                    rounds=len(reached[own]), reached=n, accepted=a, near=list(a), said=list(n), sure=sure, right=a
                )
            )
        made.block = size
        bins = np.minimum(9, (10 * self.sure[reached]).astype(int))
        for i in range(10):
            where = bins == i
            made.calibration[i] = Bin(
                count=int(where.sum()),
                sure=float(self.sure[reached][where].sum()),
                right=int(kept[reached][where].sum()),
            )
        return made


def draw(kind: Kind, rounds: int, seed: int, fall: float | None = None) -> Rounds:
    """Rounds of a draft with this fault. Its own probability is right, but for a mismatch and after a drift."""
    rng = np.random.default_rng(seed)
    fall = FALL.get(kind, 0.0) if fall is None else fall
    at = np.arange(len(RATES))
    places = {Kind.ANCHOR: at < 3, Kind.LONG_RANGE: at >= 5}.get(kind, at >= 0)
    when = np.arange(rounds) >= rounds // 2 if kind is Kind.DRIFT else np.full(rounds, True)
    lower = fall * places * when[:, None]
    sound = RATES + rng.uniform(-0.2, 0.2, (rounds, len(RATES)))
    right = rng.random(sound.shape) < sound - lower
    is_blind = kind in (Kind.MISMATCH, Kind.DRIFT)
    return Rounds(accepted=right.cumprod(1).sum(1), sure=sound if is_blind else sound - lower)
