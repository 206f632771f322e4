"""Other weights for the drafter of an engine whose thread decodes requests."""

from typing import Any

from outdraft.core.adoption import Adoption
from outdraft.core.drafter import Drafter, inner
from outdraft.engine.callers.thread import EngineThread
from outdraft.options.errors import CapabilityError


def hand_over(thread: EngineThread, weights: Any, salt: str | None = None) -> int:
    """As `between_steps.adopt`, which says what is raised: read in this thread, put in place between two steps."""
    adoption = thread.ask(lambda engine: only_adoption(engine.parts.drafter))
    ready = weights if adoption.prepare is None else adoption.prepare(weights)
    return thread.ask(lambda engine: adoption.adopt(ready, salt))


def only_adoption(drafter: Drafter) -> Adoption:
    """Of the one drafter that takes weights. Raises `CapabilityError` for none, and for several."""
    able = [one.traits.adopt for one in inner(drafter) if one.traits.adopt is not None]
    if len(able) != 1:
        raise CapabilityError(f"weights are for one drafter that can take them (`Traits.adopt`), here are {len(able)}")
    return able[0]
