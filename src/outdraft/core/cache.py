"""The contract of a key/value cache: slots for committed rows, and tentative rows beyond them."""

from collections.abc import Sequence as Seq
from typing import Protocol

from torch import Tensor


class KVCache(Protocol):
    """A pool keyed by sequence id. `length` counts committed rows; a pass writes tentative rows after them."""

    can_trim: bool  # False: `truncate` and partial `commit` are impossible, the engine snapshots instead

    def add(self, seq: int) -> None:
        """A new, empty sequence."""
        ...

    def length(self, seq: int) -> int:
        """Committed rows."""
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
        """Forget the sequence."""
        ...

    def layer_view(self, seq: int, layer: int) -> tuple[Tensor, Tensor]:
        """K and V of one layer, each [H_kv, capacity, d]."""
        ...

    def block(self, seq: int) -> tuple[Tensor, Tensor]:
        """K and V of all layers, each [L, H_kv, capacity, d]; rows of a head are contiguous."""
        ...

    def check(self) -> None:
        """Raise if an invariant broke."""
        ...
