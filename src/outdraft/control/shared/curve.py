"""Seconds as a function of a count (rows of a pass, depth of a guess), learned from single measurements.

    seconds(x) = level * shape(x)       level: follows the machine and the growing context within some ten measurements
                                        shape: slow, a mean for each x seen, pulled towards a line through all

No x takes longer than what was measured of a larger one, and a guess takes a piece at most twice as long as a smaller
one: where it seems to, the machine was busy. What was never measured lies on the line, and the line begins as a prior;
a fraction lies between its whole neighbours.
A mean counts no measurement for more than three times the median, so that no hiccup of the machine decides, but a busy
machine does, which stops short steps rarely and for long; of a few measurements one of the smallest counts. What was
learned can be kept for another process (`kept`, `recall`).

What the guesses of one arm cost depends also on how many sequences it guesses for in one step: a look-up takes as much
again for each, a network hardly more, and a batch may change its size from one step to the next. So `DraftCost` has a
curve each for crowds of 1, of 2 and 3, of 4 to 7 ... What was measured for another crowd than the one asked about is
taken in the arm's favour: as if a smaller crowd cost its share, and a larger one no more. A policy that believes that
tries it, and then it is measured. Data in: counts with seconds; data out: seconds.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from math import floor, inf
from statistics import median
from typing import Any

_FAST = 0.2  # share of the last measurements in the level
_RECENT = 5  # measurements that the level follows
_LEAP = 1.5  # times what was expected: the level follows no more at once, since hiccups come in crowds
_KEPT = 25  # measurements that a shape is the mean of
_CLIP = 3.0  # times the median: no measurement counts for more
_PULL = 1.0  # the line weighs as much as so many measurements
_FIT_EVERY = 16  # measurements between two fits, once an x is known
_KNOWN = 3  # measurements after which an x may move the level
_FEW = 6  # measurements from which a mean is taken
_STEPS = 2.0  # times as long a piece as a smaller guess: drafters that make several tokens a pass go by steps
_LEAST = 1e-9  # of a shape: the line may fall below 0 where a steep part begins
_MOST_X = 64  # shapes that are kept for another process
_MOST_KINDS = 16  # crowds of up to 65,535 sequences


class CostCurve:
    """`intercept`, `slope`: the prior's line, of which only the ratio matters. `most`: times as long a piece as a
    smaller x."""

    __slots__ = tuple("_cells _counts _line _most _num_added _prior _pulled _ratios _shapes level quickest".split())

    def __init__(self, intercept: float, slope: float, most: float = inf) -> None:
        self._most = most
        self.level = 0.0  # 0: nothing measured
        self.quickest = 0.0  # seconds of the shortest measurement of any x
        self._prior = self._line = (intercept, slope)
        self._cells: dict[float, deque[float]] = {}  # x -> what was measured, over the level of its time
        self._counts: dict[float, int] = {}  # x -> measurements of another process that its one kept value stands for
        self._shapes: dict[float, float] = {}  # x -> their mean
        self._pulled: dict[float, float] = {}  # x -> the same, pulled towards the line
        self._ratios: deque[float] = deque(maxlen=_RECENT)  # measured over expected, of any x that is known
        self._num_added = 0

    @property
    def is_measured(self) -> bool:
        """Whether any seconds are known."""
        return self.level > 0

    def has(self, x: int) -> bool:
        """Whether x itself was measured."""
        return x in self._shapes

    def count(self, x: float) -> int:
        """How many measurements of x itself are known, of the latest ones."""
        return max(len(self._cells.get(x, ())), self._counts.get(x, 0))

    def __call__(self, x: float) -> float:
        """Seconds at x; 0 where nothing was measured at all."""
        below, (intercept, slope) = floor(x), self._line
        found = self._pulled.get(below) or max(_LEAST, intercept + slope * below)
        if x != below:
            above = self._pulled.get(below + 1) or max(_LEAST, intercept + slope * (below + 1))
            found += (x - below) * (above - found)
        return self.level * found

    def add(self, x: int, seconds: float) -> None:
        if seconds <= 0:
            return
        self.quickest = min(seconds, self.quickest or seconds)
        if not self.level:
            self.level = seconds / (self._line[0] + self._line[1] * x)
        cell = self._cells.setdefault(x, deque(maxlen=_KEPT))
        if len(cell) >= _KNOWN:
            self._ratios.append(_beyond(seconds / self.level, median(cell), self._shapes[x]))
            if len(self._ratios) == _RECENT:
                self.level *= 1 + _FAST * (min(median(self._ratios), _LEAP) - 1)
        cell.append(seconds / self.level)
        self._shapes[x] = _typical(cell)
        self._num_added += 1
        if len(cell) <= _KNOWN or self._num_added % _FIT_EVERY == 0:
            self._fit()
        else:
            self._pull(self._possible((x,)))

    def scale(self, factor: float) -> None:
        """The whole machine is so much slower now than when these were measured."""
        self.level *= factor
        self.quickest *= factor

    def kept(self) -> dict[str, Any]:
        """What is worth remembering: the level, and each x with its shape and the number of its measurements."""
        known = sorted(self._shapes, key=lambda x: -len(self._cells[x]))[:_MOST_X]
        return {"level": self.level, "shapes": [[x, self._shapes[x], len(self._cells[x])] for x in sorted(known)]}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Begin with what another process kept; beside one new measurement the smaller counts.

        Raises `ValueError`, `KeyError` or `TypeError` for what is none, and has then changed nothing.
        """
        level = read_number(kept["level"], "time", most=1e9)
        cells: dict[float, deque[float]] = {
            int(x): deque([read_number(shape, "time", least=1e-12, most=1e9)], maxlen=_KEPT)
            for x, shape, _ in kept["shapes"][:_MOST_X]
        }
        if not level or not cells or min(cells) < 1:
            raise ValueError(f"nothing was measured: level {level}, {len(cells)} shapes")
        self.level, self._cells = level, cells
        self._counts = {int(x): min(int(count), _KNOWN) for x, _, count in kept["shapes"][:_MOST_X]}
        self._shapes, self._pulled = {x: cell[0] for x, cell in cells.items()}, {}
        self.quickest = level * min(self._shapes.values())
        self._fit()

    def _fit(self) -> None:
        """The line through all shapes, by least squares; the prior counts as two weak measurements."""
        intercept, slope = self._prior
        counts = {x: max(len(cell), self._counts.get(x, 0)) for x, cell in self._cells.items()}
        possible = self._possible(self._shapes)
        points = [(float(counts[x]), x, shape) for x, shape in possible.items()]
        scale = sum([n * y for n, _, y in points]) / sum([n * (intercept + slope * x) for n, x, _ in points])
        points += [(0.5, x, scale * (intercept + slope * x)) for x in (1.0, 9.0)]
        total = sum_x = sum_y = sum_xx = sum_xy = 0.0
        for weight, x, y in points:
            total += weight
            sum_x += weight * x
            sum_y += weight * y
            sum_xx += weight * x * x
            sum_xy += weight * x * y
        spread = sum_xx - sum_x * sum_x / total
        tilt = max(0.0, (sum_xy - sum_x * sum_y / total) / spread)
        self._line = (sum_y / total - tilt * sum_x / total, tilt)
        self._pull(possible)

    def _pull(self, possible: Mapping[float, float]) -> None:
        intercept, slope = self._line
        for x, shape in possible.items():
            count, on_line = max(len(self._cells[x]), self._counts.get(x, 0)), max(_LEAST, intercept + slope * x)
            self._pulled[x] = (count * shape + _PULL * on_line) / (count + _PULL)

    def _possible(self, places: Iterable[float]) -> dict[float, float]:
        """The shape at each x, as far as what was measured of other places allows."""
        found = {}
        for x in places:
            least = self._shapes[x]
            for y, shape in self._shapes.items():
                if y < x:
                    shape *= self._most * x / y
                if shape < least:
                    least = shape
            found[x] = least
        return found


def _beyond(found: float, one: float, other: float) -> float:
    """Times the nearer of two expectations; 1 between them: hiccups draw a mean and a median apart."""
    low, high = min(one, other), max(one, other)
    return found / low if found < low else found / high if found > high else 1.0


def _typical(cell: Collection[float]) -> float:
    """The mean of what was measured at one x, as it counts."""
    if len(cell) < _FEW:
        return sorted(cell)[(len(cell) - 1) // 3]
    most = _CLIP * median(cell)
    return sum([min(one, most) for one in cell]) / len(cell)


def read_number(given: Any, what: str, *, least: float = 0.0, most: float) -> float:
    """A number that another process kept. Raises `ValueError` unless it lies between the two."""
    number = float(given)
    if not least <= number <= most:
        raise ValueError(f"{given!r} is no {what}")
    return number


class DraftCost:
    """A curve for each kind of crowd. `is_flat`: it begins as if depth cost nothing, else as nearly proportional."""

    def __init__(self, *, is_flat: bool = False) -> None:
        self._prior = (*((1.0, 0.0) if is_flat else (0.1, 0.9)), _STEPS)
        self._curves: dict[int, CostCurve] = {}  # bit length of the number of sequences -> seconds by depth

    @property
    def is_measured(self) -> bool:
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
        return curve if share == 1.0 else lambda depth: share * curve(depth)

    def quick(self, depth: int) -> float:
        """Seconds of such a guess for one sequence: no more than twice the quickest, whatever else ran meanwhile."""
        if not self._curves:
            return 0.0
        curve, share = self._nearest(1)
        return share * min(curve(depth), 2 * curve.quickest)

    def count(self, depth: int, crowd: int) -> int:
        """How many measurements what it says of them stands on."""
        return self._nearest(crowd)[0].count(depth) if self._curves else 0

    def add(self, depth: int, seconds: float, crowd: int = 1) -> None:
        """A guess of this depth for so many sequences took so long."""
        if seconds <= 0:
            return
        if (curve := self._curves.get(kind := crowd.bit_length())) is None:
            curve = self._curves[kind] = CostCurve(*self._prior)
        curve.add(depth, seconds)

    def scale(self, factor: float) -> None:
        """The whole machine is so much slower now than when these were measured."""
        for curve in self._curves.values():
            curve.scale(factor)

    def kept(self) -> dict[str, Any]:
        """What is worth remembering of it, as plain data."""
        return {str(kind): curve.kept() for kind, curve in self._curves.items()}

    @classmethod
    def recalled(cls, kept: Mapping[str, Any], *, is_flat: bool = False) -> "DraftCost":
        """As it was kept. Raises `ValueError`, `KeyError` or `TypeError` for what is none."""
        made = cls(is_flat=is_flat)
        for kind, told in kept.items():
            if not 1 <= int(kind) <= _MOST_KINDS:
                raise ValueError(f"{kind!r} is no kind of crowd")
            curve = CostCurve(*made._prior)
            curve.recall(told)
            made._curves[int(kind)] = curve
        return made

    def _nearest(self, crowd: int) -> tuple[CostCurve, float]:
        """The curve of the nearest kind, and by what to multiply it."""
        wanted = crowd.bit_length()
        if (own := self._curves.get(wanted)) is not None:
            return own, 1.0
        kind = min(self._curves, key=lambda one: (abs(one - wanted), one))
        return self._curves[kind], 2.0 ** min(0, wanted - kind)
