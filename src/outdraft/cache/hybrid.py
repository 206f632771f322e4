"""A target's memory where some layers keep keys and values and others a state: one `KVCache` over both.

    rows     [ committed | a  b  c ]     the cache of the layers with attention
    states   [ of all    | Sa Sb Sc ]    one for each text, and one for each row of its draft until the commit

A commit keeps the state after the last accepted row. That was computed from its parent's, so no rejected row left a
trace in it, and a draft may be a tree. Committed states lie in a `StateStore` (`cache/state.py`); those after tentative
rows, one a row, live from a pass to its commit, and are no part of the pool.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from math import prod

import torch
from torch import Tensor

from outdraft.cache.paged import PagedCache
from outdraft.cache.state import StateStore
from outdraft.cache.static import StaticCache
from outdraft.core.cache import KVMemory
from outdraft.options.errors import CacheFullError, CapabilityError


class HybridCache:
    """`KVCache` and `StateMemory`.

    `shapes`: layer -> the shape of its state. `rows` has a layer for each of the other layers, `states` one vector for
    all states of a text, one layer's behind the other's.
    """

    can_trim = False

    def __init__(
        self, rows: StaticCache | PagedCache, states: StateStore, shapes: Mapping[int, tuple[int, ...]]
    ) -> None:
        self.rows, self.states, self.shapes = rows, states, dict(shapes)
        self.max_len, self.poison = rows.max_len, rows.poison
        every = range(rows.shape[0] + len(self.shapes))
        self._row_layers = {layer: i for i, layer in enumerate(layer for layer in every if layer not in self.shapes)}
        self._starts = {layer: sum(prod(self.shapes[i]) for i in self.shapes if i < layer) for layer in self.shapes}
        self._left: dict[int, dict[int, Tensor]] = {}  # sequence -> tentative row -> its states, one vector

    def add(self, seq: int) -> None:
        """A new, empty sequence, in the empty states. Raises `CacheFullError` where no state is left."""
        self.rows.add(seq)
        self._with_state(seq, lambda: self.states.add(seq))

    def length(self, seq: int) -> int:
        return self.rows.length(seq)

    def ids(self) -> list[int]:
        return self.rows.ids()

    def reserve(self, seq: int, n: int) -> None:
        """Room for n tentative rows. Their states take theirs when they are left."""
        self.rows.reserve(seq, n)

    def before(self, seq: int, layer: int, row: int) -> Tensor:
        """The state of `layer` after tentative row `row`, or after the committed rows (-1): a view, to be read."""
        told = self.states.state(seq) if row < 0 else self._left[seq][row]
        return self._of(layer, told)

    def leave(self, seq: int, layer: int, row: int, state: Tensor) -> None:
        """The state of `layer` after a tentative row is this."""
        rows = self._left.setdefault(seq, {})
        if row not in rows:
            rows[row] = torch.full_like(self.states.empty, torch.nan)
        self._of(layer, rows[row]).copy_(state)

    def commit(self, seq: int, keep: Seq[int]) -> None:
        """Keep these tentative rows and the states after the last of them; drop the others."""
        if keep and keep[-1] not in (left := self._left.get(seq, {})):
            raise CapabilityError(f"cache: sequence {seq} commits row {keep[-1]}, and no layer left a state after it")
        self.rows.commit(seq, keep)
        if keep:
            self.states.advance(seq, len(keep), left[keep[-1]])
        self._left.pop(seq, None)

    def truncate(self, seq: int, length: int) -> None:
        """Drop the tentative rows. Raises `CapabilityError` for another length: a state cannot go back."""
        if length != self.length(seq):
            raise CapabilityError(
                f"cache: truncate to {length}, but sequence {seq} has {self.length(seq)} rows, and the states of its "
                "recurrent layers cannot go back (can_trim=False): free it and read it again"
            )
        self.rows.truncate(seq, length)
        self._left.pop(seq, None)

    def fork(self, seq: int, new: int) -> None:
        """`new` starts with `seq`'s committed rows, and with copies of its states."""
        self.rows.fork(seq, new)
        self._with_state(new, lambda: self.states.fork(seq, new))

    def free(self, seq: int) -> None:
        self.rows.free(seq)
        self.states.free(seq)
        self._left.pop(seq, None)

    def write(self, seq: int, layer: int, slot: int, k: Tensor, v: Tensor) -> None:
        """Rows of a layer with attention."""
        self.rows.write(seq, self._row_layer(layer), slot, k, v)

    def read(self, seq: int, layer: int, stop: int, start: int = 0) -> tuple[Tensor, Tensor]:
        """K and V of a layer with attention. Raises `CapabilityError` for a recurrent one."""
        return self.rows.read(seq, self._row_layer(layer), stop, start)

    def memory(self, seq: int) -> KVMemory:
        """Raises `CapabilityError`: who reads all layers at once expects keys and values of each."""
        raise CapabilityError(
            f"layers {sorted(self.shapes)} keep states, and there are no keys and values of all layers: take a drafter "
            "that does not read the target's cache"
        )

    def check(self) -> None:
        self.rows.check()
        self.states.check()
        ids = set(self.rows.ids())
        if ids != set(self.states.ids()):
            raise AssertionError(f"cache: sequences {sorted(ids ^ set(self.states.ids()))} have only rows, or a state")
        for seq in ids:
            if self.rows.length(seq) != self.states.length(seq):
                raise AssertionError(
                    f"cache: sequence {seq} has {self.rows.length(seq)} rows, and a state after "
                    f"{self.states.length(seq)}"
                )
        for seq, left in self._left.items():
            if seq not in ids or not all(0 <= row < self.rows.num_tentative(seq) for row in left):
                raise AssertionError(f"cache: sequence {seq} holds states after rows {sorted(left)}, which are gone")

    def _with_state(self, seq: int, make: Callable[[], None]) -> None:
        """The state of a sequence whose rows are there, or neither."""
        try:
            make()
        except CacheFullError:
            self.rows.free(seq)
            raise

    def _row_layer(self, layer: int) -> int:
        if layer in self.shapes:
            raise CapabilityError(f"cache: layer {layer} is recurrent: it has a state, and no keys and values")
        return self._row_layers[layer]

    def _of(self, layer: int, states: Tensor) -> Tensor:
        """One layer's part of a vector of states, a view."""
        shape, start = self.shapes[layer], self._starts[layer]
        return states[start : start + prod(shape)].view(shape)
