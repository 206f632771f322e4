"""One variant of a model: its weights at one level of precision, with the parts built over them."""

from dataclasses import dataclass
from typing import Any

from outdraft.core.drafter import inner
from outdraft.decode.guard import unguarded
from outdraft.decode.guidance import unguided
from outdraft.decode.parts import Parts
from outdraft.engine.runner import Runner
from outdraft.models.networks.network import Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One level, ready to run."""

    parts: Parts
    name: str  # of the target's rounding, weights and cache
    config: dict[str, Any]  # plain data that says what the parts are

    @property
    def num_bytes(self) -> int:
        """Of the weights that a level may change."""
        held = [weights for one in inner(self.parts.drafter) for weights in one.traits.weights]
        return network_of(self.parts).pass_bytes + sum(weights.pass_bytes for weights in held)


def network_of(parts: Parts) -> Network:
    """The network behind the target."""
    return runner_of(parts).decoder


def runner_of(parts: Parts) -> Runner:
    """The target, without guard and guidance around it."""
    target = unguided(unguarded(parts.target))
    assert isinstance(target, Runner)
    return target
