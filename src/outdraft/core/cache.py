"""The contracts of memory: slots for committed rows and tentative rows beyond them; and states, which cannot trim."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

PAGE = 16  # slots of a page: the block in which attention kernels take keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KVMemory:
    """Where one sequence's rows stand, for kernels.

    Slot s of head h in layer l is `keys[l, table[s // 16], h, s % 16]`. Strides are any, but the slots of a page lie
    one after another, and the scales of an int8 cache like the rows they belong to. Valid until the next `reserve`.
    """

    keys: Tensor  # [L, pages, Hkv, 16, d]
    values: Tensor  # the same
    table: Tensor  # [pages of the sequence] int32, on the host
    key_scales: Tensor | None = None  # [L, pages, Hkv, 16] float32: a row is its bytes times its scale
    value_scales: Tensor | None = None  # the same


class KVCache(Protocol):
    """A pool keyed by sequence id. `length` counts committed rows; a pass writes tentative rows after them."""

    can_trim: bool  # True: a row may be dropped and the others stay as they are; else see `StateMemory`

    def add(self, seq: int) -> None:
        """A new, empty sequence."""

    def length(self, seq: int) -> int:
        """How many rows of the sequence are committed."""

    def reserve(self, seq: int, n: int) -> None:
        """Make room for n tentative rows beyond the committed ones."""

    def commit(self, seq: int, keep: Seq[int]) -> None:
        """Keep these tentative rows, in this order, in contiguous slots of every layer; drop the others."""

    def truncate(self, seq: int, length: int) -> None:
        """Forget everything from row `length` on. A cache that cannot trim takes its own length alone."""

    def fork(self, seq: int, new: int) -> None:
        """`new` starts with a copy of `seq`'s committed rows."""

    def free(self, seq: int) -> None:
        """Forget the sequence and give back its slots."""

    def write(self, seq: int, layer: int, slot: int, k: Tensor, v: Tensor) -> None:
        """Rows k and v [n, Hkv, d] into the reserved slots `slot`, `slot` + 1, ... of one layer."""

    def read(self, seq: int, layer: int, stop: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of one layer's slots [start, stop), each [Hkv, stop - start, d]: a view or a copy.

        A caller that changes them puts them back before another one looks.
        """

    def memory(self, seq: int) -> KVMemory:
        """Where all layers' rows stand."""

    def check(self) -> None:
        """Raise if an invariant broke."""


@runtime_checkable
class StateMemory(Protocol):
    """What a `KVCache` keeps besides for recurrent layers: a state for each text, and one after each tentative row.

    A commit keeps the state after the last row that it keeps; `truncate`, `free` and the commit drop the others.
    """

    def length(self, seq: int) -> int:
        """How many rows the committed state has read."""

    def before(self, seq: int, layer: int, row: int) -> Tensor:
        """The state of `layer` after tentative row `row`, or after the committed rows (-1). Valid until the commit."""

    def leave(self, seq: int, layer: int, row: int, state: Tensor) -> None:
        """The state of `layer` after a tentative row is this."""
