"""What works beside the engine of an `LLM` reaches it here, between two steps, in the engine's own thread.

    listen       hear what it does (`core/watch.py`)
    adopt        hand its drafter other weights (`core/drafter.py`)
    while_idle   have something done while no request runs, a slice at a time

No text depends on any of them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from outdraft.core.watch import Watch
from outdraft.engine.callers.adoption import hand_over
from outdraft.engine.loop import Engine, Idle
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


def adopt(llm: "LLM", weights: Mapping[str, Tensor] | Path, salt: str | None = None) -> int:
    """Replace the drafter's weights, while requests go on. Returns the version that events name from then on.

    `weights`: as the drafter takes them; the directory of a network, where its options say `adopts=True`. It is read
    in the caller's thread. `salt`: for requests with this `cache_salt` alone, "" for those without one; None: for all
    that have no network of their own so.
    Raises `CapabilityError` where not exactly one drafter takes weights, and else what the drafter raises, which then
    has its old ones.
    """
    return hand_over(llm._thread, weights, salt)


def while_idle(llm: "LLM", work: Idle | None) -> None:
    """Have `work` called again and again while no request runs, in the place of earlier work; None: nothing more.

        request | slice, slice, sl- | request | slice, slice | no more to do: it waits | request | slice, ...
                                  ^ a request waits: `is_wanted`

    It is called in the engine's thread, for one bounded slice of it. What raises is not called again. Before a fork it
    rests, until the next request is over.
    """
    llm._thread.ask(lambda engine: setattr(engine, "idle", work))
