"""`Skip`: which sublayers of a decoder a pass leaves out, for drafters that run a part of the target.

    layer   0          1          2          3
            attn mlp   attn mlp   attn mlp   attn mlp
    skip                 x    x          x                    Skip(attention={1}, mlp={1, 2})

A sublayer that is left out adds nothing to the hidden state, and an attention that is left out writes no keys.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Skip:
    """Layers, counted from 0, whose attention or whose feed-forward part does not run."""

    attention: frozenset[int] = frozenset()
    mlp: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.attention) + len(self.mlp)

    def flags(self, layers: Iterable[int]) -> bytes:
        """For kernels, one byte a layer: 1 without attention, 2 without feed-forward, 3 without both."""
        return bytes((i in self.attention) | (i in self.mlp) << 1 for i in layers)

    def check(self, num_layers: int, name: str) -> None:
        """Raise `ConfigError` if it names a layer that a decoder of `num_layers` has not; `name`: whose set it is."""
        beyond = sorted(i for i in self.attention | self.mlp if not 0 <= i < num_layers)
        if beyond:
            raise ConfigError(
                f"{name} names layer {beyond[0]}, the target has layers 0 to {num_layers - 1}: "
                "a skip set belongs to the model that it was found for"
            )


NO_SKIP = Skip()
