"""Seconds as a function of a count (rows of a pass, depth of a guess), learned from single measurements.

    seconds(x) = level * shape(x)       level: follows the machine and the growing context within some ten measurements
                                        shape: slow, one mean for each x seen, pulled towards a line through all

What was never measured lies on the line, and the line begins as a prior. A measurement far above what is known counts
as half as much again, so that one hiccup of the machine does not decide. Data in: counts with seconds; data out:
seconds.
"""

_FAST = 0.1  # share of a measurement in the level
_SLOW = 1 / 24  # least share of a measurement in its shape
_PULL = 2.0  # the line weighs as much as so many measurements
_CLIP = 1.5  # times what is known
_FIT_EVERY = 16  # measurements between two fits, once an x is known
_KNOWN = 3  # measurements after which an x may move the level


class Curve:
    """`intercept`, `slope`: the prior's line; only their ratio matters."""

    __slots__ = ("_cells", "_line", "_num_added", "_prior", "level")

    def __init__(self, intercept: float, slope: float) -> None:
        self.level = 0.0  # 0: nothing measured
        self._prior = self._line = (intercept, slope)
        self._cells: dict[float, tuple[float, float]] = {}  # x -> measurements, mean shape
        self._num_added = 0

    @property
    def is_measured(self) -> bool:
        """Whether any seconds are known."""
        return self.level > 0

    def __call__(self, x: float) -> float:
        """Seconds at x; 0 where nothing was measured at all."""
        on_line = self._line[0] + self._line[1] * x
        cell = self._cells.get(x)
        if cell is None:
            return self.level * (on_line if on_line > 0 else 1e-9)
        count, mean = cell
        return self.level * (count * mean + _PULL * on_line) / (count + _PULL)

    def add(self, x: int, seconds: float) -> None:
        """One measurement."""
        if seconds <= 0:
            return
        if not self.level:
            self.level = seconds / (self._line[0] + self._line[1] * x)
        expected = self(x)
        count, mean = self._cells.get(x, (0.0, expected / self.level))
        if count:
            seconds = min(seconds, _CLIP * expected)
        if count >= _KNOWN:
            self.level *= 1 + _FAST * (seconds / (self.level * mean) - 1)
        mean += max(1 / (count + 1), _SLOW) * (seconds / self.level - mean)
        self._cells[x] = (min(count + 1, 1 / _SLOW), mean)
        self._num_added += 1
        if count < _KNOWN or self._num_added % _FIT_EVERY == 0:
            self._fit()

    def _fit(self) -> None:
        """The line through all shapes, by least squares; the prior counts as two weak measurements."""
        intercept, slope = self._prior
        total = sum_x = sum_y = sum_xx = sum_xy = 0.0
        points = [(0.5, 1.0, intercept + slope), (0.5, 9.0, intercept + 9 * slope)]
        points += [(count, x, mean) for x, (count, mean) in self._cells.items()]
        for weight, x, y in points:
            total += weight
            sum_x += weight * x
            sum_y += weight * y
            sum_xx += weight * x * x
            sum_xy += weight * x * y
        spread = sum_xx - sum_x * sum_x / total
        tilt = max(0.0, (sum_xy - sum_x * sum_y / total) / spread)
        self._line = (sum_y / total - tilt * sum_x / total, tilt)
