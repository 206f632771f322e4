"""What a server says of a draft that learns: instruments of /metrics, and the answer of /v1/adapt.

Only of requests without a tenant's name: how a tenant's draft fares is not for others to see.
"""

from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from outdraft.engine.adapting.adapting import Adapting

_PREFIX = "outdraft:adapt_"
_NUMBERS = {
    "version": "version of the draft that serves; 0: the one of the beginning",
    "requests_kept": "requests written to disk since the start, of all tenants",
    "rounds": "rounds observed of the version that serves",
    "frozen": "1 while nothing is learned",
}
_RATES = {
    "acceptance": "guesses accepted of those reached, by position from 0; a moving average",
    "marginal_acceptance": "mean of p(guess) over the largest p, by position from 0; a moving average",
    "hazards": "guesses rejected of those reached, by position from 0, of all rounds observed of this version",
    "first_rejection": "rounds whose first rejection fell on this position, from 0, of the same",
}


class AdaptInstruments:
    """Set when they are asked for. `name`: what answers call the model."""

    def __init__(self, registry: CollectorRegistry, name: str, adapting: Adapting) -> None:
        self._name, self._adapting = name, adapting
        labels = ("model_name",)
        self._numbers = {one: Gauge(_PREFIX + one, told, labels, registry=registry) for one, told in _NUMBERS.items()}
        self._rates = {
            one: Gauge(_PREFIX + one, told, (*labels, "position"), registry=registry) for one, told in _RATES.items()
        }

    def update(self) -> None:
        """Set all of them to what the status says."""
        status = self._adapting.status()
        for name, gauge in self._numbers.items():
            gauge.labels(self._name).set(float(status[name]))
        for name, gauge in self._rates.items():
            for position, rate in enumerate(status[name]):
                gauge.labels(self._name, str(position)).set(rate)


def adapt_status(adapting: Adapting) -> dict[str, Any]:
    """For clients: no place of this machine, and no other tenant."""
    return {key: value for key, value in adapting.status().items() if key not in ("room", "tenants")}
