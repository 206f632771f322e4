"""An engine whose weights change between requests: a request is decoded from its first token to its last by one
distribution.

    waiting  r4 r3 | running r2 r1 (full)        memory is short: r3 waits
    waiting  r4 r3 | running -                   the old weights go, the new ones come
    waiting  -     | running r4 r3 (mixed)       each result names its variant

One set of weights is held at a time, and requests keep their order. A change costs the load of a model.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from outdraft.core.drafter import Drafter
from outdraft.engine.assembly.memory import Memory, give_back, read_memory
from outdraft.engine.assembly.precision import DRAFT_INT4, ELASTIC, FULL, MIXED, ElasticOptions, Ladder
from outdraft.engine.assembly.setup import Setup
from outdraft.engine.assembly.variant import Variant
from outdraft.engine.loop import Engine
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.network import Network
from outdraft.models.remake.quantize import mixed_precision
from outdraft.nn.linear import LinearMap
from outdraft.nn.quant.rounded import RoundedMap
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
        _give_back()
        loaded = self._load(level)
        self.parts, self.variant = loaded.parts, loaded.name
        self.config = self._describe(level, loaded)
        self.ladder.hold(level, loaded.num_bytes)
        self._empty = False
        _give_back()

    def _describe(self, level: str, variant: Variant) -> dict[str, Any]:
        """What runs, in one piece, for other threads read it while this one changes it."""
        return {**variant.config, "precision": {"name": ELASTIC, **self.ladder.describe(), "level": level}}


def elastic_ladder(setup: Setup, network: Network, drafter: Drafter, options: ElasticOptions) -> Ladder:
    """The levels that save memory here, and whose memory is read; `drafter` as it is at the top.

    Raises `CapabilityError` where the target's middle layers cannot be held on 4 bits.
    """
    if network.kernels == "pytorch" and (reason := _why_floats(network)):
        raise CapabilityError(
            f"precision={ELASTIC!r} saves memory on the native kernels and on CUDA, and {setup.directory.name} runs "
            f"through PyTorch here with floats ({reason}): name a precision"
        )
    if network.config.variant:
        raise CapabilityError(
            f"precision={ELASTIC!r} rounds the target, and {setup.directory.name} is rounded already "
            f"({network.config.variant}): take the original, or precision='full'"
        )
    mixed_precision(network.config.num_layers)  # it raises where there are too few layers
    may_shrink = setup.combination.quantization == "auto"
    weights = drafter.traits.weights
    shrinks = may_shrink and weights and all(one.can_shrink for one in weights)
    read = partial(device_memory, network.device) if network.device.type == "cuda" else read_memory
    return Ladder((FULL, DRAFT_INT4, MIXED) if shrinks else (FULL, MIXED), options, read)


def _why_floats(network: Network) -> str:
    """Why PyTorch would hold middle layers on 4 bits as floats; "" where it would not."""
    from outdraft.nn.quant.four_bits import why_not  # for GPUs alone

    if not isinstance(network, Decoder) or network.device.type not in RoundedMap.packs_on:
        return f"4 bits stay packed on {' and '.join(RoundedMap.packs_on)} only"
    if network.exact:
        return "exact=True needs them"
    maps = [one for layer in network.layers[1:-1] for one in layer.modules() if isinstance(one, LinearMap)]
    return next(filter(None, (why_not(one.shape, network.dtype, network.device) for one in maps)), "")


def device_memory(device: torch.device) -> Memory:
    """Of a GPU; what PyTorch keeps for later tensors is free."""
    free, total = torch.cuda.mem_get_info(device)
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return Memory(free=free + kept, total=total)


def _give_back() -> None:
    give_back()
    torch.cuda.empty_cache()  # it does nothing where there is no CUDA
