"""What a pass without guesses takes, as far as the engine's policy has measured it."""

from typing import Protocol, runtime_checkable

from outdraft.control.shared.costs import MeasuredCosts
from outdraft.engine.assembly.remembered import Remembering
from outdraft.engine.loop import Engine


@runtime_checkable
class Measuring(Protocol):
    """A policy that measures what passes cost."""

    costs: MeasuredCosts


def plain_pass(engine: Engine, num_texts: int = 1) -> float | None:
    """Seconds of such a pass over so many texts; None where none was measured. May be asked from any thread."""
    if engine.composition.is_empty:
        return None
    policy = engine.parts.policy
    inner = policy.inner if isinstance(policy, Remembering) else policy
    return inner.costs.plain(num_texts) if isinstance(inner, Measuring) else None
