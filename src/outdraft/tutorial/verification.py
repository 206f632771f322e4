"""`ProbabilisticVerification`: the tutorial's three names, each with the residual that makes it exact.

    stochastic       accept x with min(1, p / q)
    deterministic    accept x where p >= q                 (accepts less; a gate before the same coin)
    conservative     accept x where p >= threshold * q     (a larger threshold is the stricter one)

With exact=False the gates are the tutorial's: what passes is kept without a coin, and nothing is drawn from a residual.
That is lossy, and every result says so.
"""

from dataclasses import dataclass, field
from typing import Any

from outdraft.core.errors import ConfigError
from outdraft.core.registry import near_miss

STRATEGIES = ("stochastic", "deterministic", "conservative")


@dataclass(frozen=True, slots=True)
class ProbabilisticVerification:
    """Which rule judges. Raises `ConfigError` for a strategy that there is not, and for a lossy "stochastic"."""

    strategy: str = "stochastic"
    threshold: float = field(default=0.5, kw_only=True)  # of "conservative"
    exact: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            known = list(STRATEGIES)
            raise ConfigError(
                f"strategy={self.strategy!r} is unknown{near_miss(self.strategy, known)}; known: {', '.join(known)}"
            )
        if self.strategy == "stochastic" and not self.exact:
            raise ConfigError("'stochastic' is exact in any case: leave exact=False out, or take another strategy")
        if self.threshold <= 0:
            raise ConfigError(f"threshold={self.threshold:g}: must be above 0")

    @property
    def verifier(self) -> str:
        """The rule's name."""
        return "rejection" if self.strategy == "stochastic" else "gated"

    @property
    def verifier_options(self) -> dict[str, Any]:
        """Its options."""
        if self.strategy == "stochastic":
            return {}
        return {"ratio": 1.0 if self.strategy == "deterministic" else self.threshold, "exact": self.exact}
