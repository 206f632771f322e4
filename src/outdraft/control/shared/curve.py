"""Seconds as a function of a count (rows of a pass, depth of a guess), learned from single measurements.

    seconds(x) = level * shape(x)       level: follows the machine and the growing context within some ten measurements
                                        shape: slow, a median for each x seen, pulled towards a line through all

What was never measured lies on the line, and the line begins as a prior. Medians, so that no hiccup of the machine
decides, nor a first measurement that was none. Data in: counts with seconds; data out: seconds.
"""

from collections import deque
from statistics import median

_FAST = 0.2  # share of the last measurements in the level
_RECENT = 5  # measurements that the level follows
_KEPT = 25  # measurements that a shape is the median of
_PULL = 1.0  # the line weighs as much as so many measurements
_FIT_EVERY = 16  # measurements between two fits, once an x is known
_KNOWN = 3  # measurements after which an x may move the level


class Curve:
    """`intercept`, `slope`: the prior's line; only their ratio matters."""

    __slots__ = ("_cells", "_line", "_num_added", "_prior", "_ratios", "_shapes", "level")

    def __init__(self, intercept: float, slope: float) -> None:
        self.level = 0.0  # 0: nothing measured
        self._prior = self._line = (intercept, slope)
        self._cells: dict[float, deque[float]] = {}  # x -> what was measured, over the level of its time
        self._shapes: dict[float, float] = {}  # x -> their median
        self._ratios: deque[float] = deque(maxlen=_RECENT)  # measured over expected, of any x that is known
        self._num_added = 0

    @property
    def is_measured(self) -> bool:
        """Whether any seconds are known."""
        return self.level > 0

    def __call__(self, x: float) -> float:
        """Seconds at x; 0 where nothing was measured at all."""
        on_line = self._line[0] + self._line[1] * x
        if x not in self._shapes:
            return self.level * (on_line if on_line > 0 else 1e-9)
        count = len(self._cells[x])
        return self.level * (count * self._shapes[x] + _PULL * on_line) / (count + _PULL)

    def add(self, x: int, seconds: float) -> None:
        if seconds <= 0:
            return
        if not self.level:
            self.level = seconds / (self._line[0] + self._line[1] * x)
        cell = self._cells.setdefault(x, deque(maxlen=_KEPT))
        if len(cell) >= _KNOWN:
            self._ratios.append(seconds / (self.level * self._shapes[x]))
            if len(self._ratios) == _RECENT:
                self.level *= 1 + _FAST * (median(self._ratios) - 1)
        cell.append(seconds / self.level)
        self._shapes[x] = median(cell)
        self._num_added += 1
        if len(cell) <= _KNOWN or self._num_added % _FIT_EVERY == 0:
            self._fit()

    def _fit(self) -> None:
        """The line through all shapes, by least squares; the prior counts as two weak measurements."""
        intercept, slope = self._prior
        points = [(float(len(self._cells[x])), x, shape) for x, shape in self._shapes.items()]
        scale = sum(n * y for n, _, y in points) / sum(n * (intercept + slope * x) for n, x, _ in points)
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
