"""An effect as evidence of a fault: its size, how sure it is, from where on it counts, what would have been found."""

from dataclasses import dataclass
from statistics import NormalDist

ERRORS = 4.0  # standard errors that an effect needs, beside its size
POWER = 0.9  # with which a fault would have been found, before its absence is called healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """An effect, how sure it is, and from where on it counts."""

    effect: float  # in acceptance of an examined guess; positive is worse
    standard_error: float
    threshold: float  # of the effect

    @property
    def z(self) -> float:
        """The effect in standard errors."""
        return self.effect / self.standard_error

    @property
    def is_alarm(self) -> bool:
        """Whether it is both large and sure enough."""
        return self.effect >= self.threshold and self.z >= ERRORS

    @property
    def power(self) -> float:
        """The chance that an effect of twice the threshold would have been an alarm."""
        far = 2 * self.threshold - max(self.threshold, ERRORS * self.standard_error)
        return NormalDist().cdf(far / self.standard_error)

    @property
    def shortage(self) -> float:
        """How many times as many rounds a power of `POWER` takes."""
        margin = NormalDist().inv_cdf(POWER)
        enough = min(2 * self.threshold / (ERRORS + margin), self.threshold / margin)
        return (self.standard_error / enough) ** 2
