"""Hear which pages an engine's prefix cache holds (`cache/page_events.py`)."""

from typing import TYPE_CHECKING

from outdraft.cache.page_events import PageEvents
from outdraft.engine.assembly.elastic import ElasticEngine
from outdraft.engine.loop import Engine
from outdraft.engine.runner import Runner
from outdraft.options.errors import CapabilityError

if TYPE_CHECKING:
    from outdraft.engine.llm import LLM


def page_events(llm: "LLM") -> PageEvents:
    """The log of its target's pages, from now on, in place of an earlier one.

    Raises `CapabilityError` where no page is ever shared, or pages go with their weights.
    """
    events = PageEvents()

    def begin(engine: Engine) -> None:
        if isinstance(engine, ElasticEngine):
            raise CapabilityError(
                "precision='elastic' changes the weights, and all pages with them, so there is no log of pages: name "
                "another precision, or leave the log out (kv_events, --kv-events)"
            )
        target: object = engine.parts.target
        while not isinstance(target, Runner) and hasattr(target, "target"):
            target = target.target  # what stands around a runner
        if not isinstance(target, Runner) or target.shared is None:
            raise CapabilityError(
                "this engine shares no pages between texts, so there is nothing to report of them: turn prefix caching "
                "on (enable_prefix_caching=True, --enable-prefix-caching)"
            )
        target.shared.cache.store.listen(events)

    llm._thread.ask(begin)
    return events
