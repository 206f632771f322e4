"""The contracts of memory: slots for committed rows and tentative rows beyond them; and states, which cannot trim."""

from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

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

    can_trim: bool  # True: a row may be dropped and the others stay as they are; else see `StateCache`

    def add(self, seq: int) -> None:
        """A new, empty sequence."""
        ...

    def length(self, seq: int) -> int:
        """How many rows of the sequence are committed."""
        ...

    def reserve(self, seq: int, n: int) -> None:
        """Make room for n tentative rows beyond the committed ones."""
        ...

    def commit(self, seq: int, keep: Seq[int]) -> None:
        """Keep these tentative rows, in this order, in contiguous slots of every layer; drop the others."""
        ...

    def truncate(self, seq: int, length: int) -> None:
        """Forget everything from row `length` on."""
        ...

    def fork(self, seq: int, new: int) -> None:
        """`new` starts with a copy of `seq`'s committed rows."""
        ...

    def free(self, seq: int) -> None:
        """Forget the sequence and give back its slots."""
        ...

    def write(self, seq: int, layer: int, slot: int, k: Tensor, v: Tensor) -> None:
        """Rows k and v [n, Hkv, d] into the reserved slots `slot`, `slot` + 1, ... of one layer."""
        ...

    def read(self, seq: int, layer: int, stop: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of one layer's slots [start, stop), each [Hkv, stop - start, d]: a view or a copy.

        A caller that changes them puts them back before another one looks.
        """
        ...

    def memory(self, seq: int) -> KVMemory:
        """Where all layers' rows stand."""
        ...

    def check(self) -> None:
        """Raise if an invariant broke."""
        ...


class StateCache(Protocol):
    """States of layers that fold every row into one: a row cannot be dropped, only an earlier state be restored.

    No method keeps a tensor that it is given, and none shares a state between sequences.
    """

    can_trim: bool  # False

    def add(self, seq: int) -> None:
        """A new sequence, in the empty state."""
        ...

    def length(self, seq: int) -> int:
        """How many rows its state has read."""
        ...

    def state(self, seq: int) -> Tensor:
        """Its state, to be read; `advance` changes it."""
        ...

    def advance(self, seq: int, n: int, state: Tensor) -> None:
        """`state` is that after n rows more."""
        ...

    def snapshot(self, seq: int) -> None:
        """Keep a copy of the state as it is, for this sequence."""
        ...

    def restore(self, seq: int, length: int) -> None:
        """Go back to the copy of exactly this length. Raises `CapabilityError` where there is none."""
        ...

    def publish(self, seq: int, salt: Hashable, tokens: Seq[int]) -> bool:
        """Later texts that begin with these tokens, which are all that it has read, may begin from its state."""
        ...

    def adopt(self, seq: int, salt: Hashable, tokens: Seq[int]) -> int:
        """Begin an empty sequence from what was published of this text; returns how many rows it has then read."""
        ...

    def free(self, seq: int) -> None:
        """Drop the sequence and give its memory back."""
        ...

    def check(self) -> None:
        """Raise if an invariant broke."""
        ...
