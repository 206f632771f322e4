"""An engine whose weights change between requests: a request is decoded from its first token to its last by one
distribution.

    waiting  r4 r3 | running r2 r1 (full)        memory is short: r3 waits
    waiting  r4 r3 | running -                   the old weights go, the new ones come
    waiting  -     | running r4 r3 (mixed)       each result names its variant

One set of weights is held at a time, and requests keep their order. A change costs the load of a model.
"""

from collections.abc import Callable
from typing import Any

from outdraft.core.drafter import Drafter
from outdraft.engine.assembly.memory import give_back
from outdraft.engine.assembly.precision import DRAFT_INT4, ELASTIC, FULL, MIXED, Ladder
from outdraft.engine.assembly.setup import Setup
from outdraft.engine.assembly.variant import Variant
from outdraft.engine.loop import Engine
from outdraft.models.networks.network import Network
from outdraft.models.remake.quantize import mixed_precision
from outdraft.options.errors import CapabilityError


class ElasticEngine(Engine):
    """`first` is the top of the `ladder`; `load` makes what stands on another level. `settings` are `Engine`'s."""

    def __init__(self, first: Variant, load: Callable[[str], Variant], ladder: Ladder, **settings: Any) -> None:
        super().__init__(first.parts, variant=first.name, **settings)
        self.ladder = ladder
        self.config = self._describe(ladder.level, first)
        self._load = load
        self._empty = False
        ladder.hold(ladder.level, first.num_bytes)

    def admits(self) -> bool:
        """Whether the next request may join: those that run end in the precision that they began with."""
        level = self.ladder.choose()
        if level == self.ladder.level and not self._empty:
            return True
        if self.running:
            return False
        if any(seq.num_preempted for seq in self.waiting):  # it had to give back its memory, and ends as it began
            return True
        self._change(level)
        return True

    def _change(self, level: str) -> None:
        """Nothing runs: let the old weights go, then load. If that fails, the next request tries again."""
        if not self._empty:
            self.composition.let_go()
        self._empty = True
        give_back()
        loaded = self._load(level)
        self.parts, self.variant = loaded.parts, loaded.name
        self.config = self._describe(level, loaded)
        self.ladder.hold(level, loaded.num_bytes)
        self._empty = False
        give_back()

    def _describe(self, level: str, variant: Variant) -> dict[str, Any]:
        """What runs, in one piece, for other threads read it while this one changes it."""
        return {**variant.config, "precision": {"name": ELASTIC, **self.ladder.describe(), "level": level}}


def elastic_levels(setup: Setup, network: Network, drafter: Drafter) -> tuple[str, ...]:
    """The levels that save memory here; `drafter` as it is at the top.

    Raises `CapabilityError` where the target's middle layers cannot be held on 4 bits.
    """
    if network.kernels == "pytorch":
        raise CapabilityError(
            f"precision={ELASTIC!r} saves memory on the native kernels only, and {setup.directory.name} runs through "
            "PyTorch here: name a precision"
        )
    if network.config.variant:
        raise CapabilityError(
            f"precision={ELASTIC!r} rounds the target, and {setup.directory.name} is rounded already "
            f"({network.config.variant}): take the original, or precision='full'"
        )
    mixed_precision(network.config.num_layers)  # it raises where there are too few layers
    may_shrink = setup.combination.quantization == "auto"
    weights = drafter.traits.weights
    if may_shrink and weights and all(one.can_shrink for one in weights):
        return FULL, DRAFT_INT4, MIXED
    return FULL, MIXED
