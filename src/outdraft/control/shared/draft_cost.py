"""What the guesses of one arm cost, by their depth and by how many sequences it guesses for in one step.

A look-up takes as much again for each sequence, a network hardly more, and a batch may change its size from one step to
the next. So the seconds are learned for crowds of 1, of 2 and 3, of 4 to 7 ... apart. What was measured for another
crowd than the one asked about is taken in the arm's favour: as if a smaller crowd cost its share, and a larger one no
more. A policy that believes that tries it, and then it is measured. Data in: depths and seconds; data out: seconds.
"""

from collections.abc import Callable, Mapping
from typing import Any

from outdraft.control.shared.curve import Curve

_MOST_KINDS = 16  # crowds of up to 65,535 sequences


class DraftCost:
    """A curve for each kind of crowd."""

    def __init__(self) -> None:
        self._curves: dict[int, Curve] = {}  # bit length of the number of sequences -> seconds by depth

    @property
    def is_measured(self) -> bool:
        """Whether any seconds are known."""
        return bool(self._curves)

    def __call__(self, depth: int, crowd: int = 1) -> float:
        """Seconds of guesses of this depth for so many sequences; 0 where nothing was measured at all."""
        if not self._curves:
            return 0.0
        curve, share = self._nearest(crowd)
        return share * curve(depth)

    def of(self, crowd: int) -> Callable[[int], float]:
        """The same by depth alone."""
        if not self._curves:
            return lambda depth: 0.0
        curve, share = self._nearest(crowd)
        return lambda depth: share * curve(depth)

    def quickest(self, crowd: int) -> float:
        """Seconds of the shortest guess of any depth."""
        if not self._curves:
            return 0.0
        curve, share = self._nearest(crowd)
        return share * curve.quickest

    def add(self, depth: int, seconds: float, crowd: int = 1) -> None:
        """A guess of this depth for so many sequences took so long."""
        if seconds > 0:
            self._curves.setdefault(crowd.bit_length(), Curve(0.1, 0.9)).add(depth, seconds)  # nearly proportional

    def scale(self, factor: float) -> None:
        """The whole machine is so much slower now than when these were measured."""
        for curve in self._curves.values():
            curve.scale(factor)

    def kept(self) -> dict[str, Any]:
        """What is worth remembering of it, as plain data."""
        return {str(kind): curve.kept() for kind, curve in self._curves.items()}

    @classmethod
    def recalled(cls, kept: Mapping[str, Any]) -> "DraftCost":
        """As it was kept. Raises `ValueError`, `KeyError` or `TypeError` for what is none."""
        made = cls()
        for kind, told in kept.items():
            if not 1 <= int(kind) <= _MOST_KINDS:
                raise ValueError(f"{kind!r} is no kind of crowd")
            curve = Curve(0.1, 0.9)
            curve.recall(told)
            made._curves[int(kind)] = curve
        return made

    def _nearest(self, crowd: int) -> tuple[Curve, float]:
        """The curve of the nearest kind, and by what to multiply it."""
        wanted = crowd.bit_length()
        if (own := self._curves.get(wanted)) is not None:
            return own, 1.0
        kind = min(self._curves, key=lambda one: (abs(one - wanted), one))
        return self._curves[kind], 2.0 ** min(0, wanted - kind)
