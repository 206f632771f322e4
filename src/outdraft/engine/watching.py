"""Hear what the engine of an `LLM` does (`core/watch.py`): a watch comes and goes between two steps."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from outdraft.core.watch import Watch
from outdraft.engine.loop import Engine
from outdraft.options.errors import CapabilityError

if TYPE_CHECKING:
    from outdraft.engine.llm import LLM


def listen(llm: "LLM", make: Callable[[Engine], Watch]) -> Callable[[], None]:
    """`make` a watch, which hears everything from then on. Returns a function that ends it; it may be called late."""

    def begin(engine: Engine) -> Watch:
        watch = make(engine)
        engine.watch.add(watch)
        return watch

    watch = llm._thread.ask(begin)

    def end() -> None:
        with suppress(CapabilityError):  # the engine's thread has ended, so nothing is reported any more
            llm._thread.ask(lambda engine: engine.watch.remove(watch))

    return end
