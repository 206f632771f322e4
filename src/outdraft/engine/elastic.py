"""An engine whose weights change between requests: a request is decoded from its first token to its last by one law.

    waiting  r4 r3 | running r2 r1 (full)        memory is short: r3 waits
    waiting  r4 r3 | running -                   the old weights go, the new ones come
    waiting  -     | running r4 r3 (mixed)       each result names its variant

One set of weights is held at a time, and requests keep their order. A change costs the load of a model.
"""

from collections.abc import Callable
from typing import Any

from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.engine.loop import Engine
from outdraft.engine.memory import give_back
from outdraft.engine.precision import Ladder
from outdraft.engine.variant import Variant


class ElasticEngine(Engine):
    """`first` is the top of the `ladder`; `load` makes what stands on another level. `settings` are `Engine`'s."""

    def __init__(self, first: Variant, load: Callable[[str], Variant], ladder: Ladder, **settings: Any) -> None:
        super().__init__(first.parts, variant=first.name, **settings)
        self.ladder = ladder
        self.config = first.config
        self._load = load
        self._empty = False
        ladder.hold(ladder.level, first.num_bytes)

    def add(self, request: Request, find_stop: Callable[[int], bool] | None = None) -> Sequence:
        """As `Engine.add`."""
        if self._empty:
            self._change(self.ladder.level)
        return super().add(request, find_stop)

    def admits(self) -> bool:
        """Whether the next request may join: those that run end in the precision that they began with."""
        level = self.ladder.choose()
        if level == self.ladder.level and not self._empty:
            return True
        if self.running:
            return False
        self._change(level)
        return True

    def _change(self, level: str) -> None:
        """Nothing runs: let the old weights go, then load. If that fails, the next request tries again."""
        if not self._empty:
            del self.parts
        self._empty = True
        give_back()
        loaded = self._load(level)
        self.parts, self.variant, self.config = loaded.parts, loaded.name, loaded.config
        self.ladder.hold(level, loaded.num_bytes)
        self._empty = False
        give_back()
