"""States of layers that cannot trim, one for each sequence.

    slot   0: the state of A after 37 rows     1: of B after 32     2: free

A recurrent layer folds every row into one state of fixed size, so a dropped row cannot be taken out again. No slot is
ever shared: a fork copies the state, so that no write meets another's.

In a `PagePool` a state is one more thing that a page of text takes: there are as many slots as pages. A sequence has
one page at least, so one with room for its rows has room for its state.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.cache.pool import PagePool
from outdraft.core.target import Needs
from outdraft.options.errors import CacheFullError, CapabilityError

_FIRST = 8  # slots of a store that grows


@dataclass(slots=True, kw_only=True)
class _Entry:
    """One sequence: the slot of its state, and how many rows that has read."""

    slot: int
    length: int = 0


class StateStore:
    """States in one block of slots; it keeps no tensor that it is given. `empty`: the state before any row.

    As many as the `pool` has pages; without one their number doubles as need be. `poison` (tests): NaN where nothing
    stands.
    """

    def __init__(self, empty: Tensor, *, pool: PagePool | None = None, poison: bool = False) -> None:
        self.empty, self._pool, self.poison = empty, pool, poison
        self._states = empty.new_empty((0, *empty.shape))  # [slots, *shape], made when the first sequence comes
        self._free: list[int] = []
        self._entries: dict[int, _Entry] = {}
        if pool is not None:
            pool.join(empty.numel() * empty.element_size(), lambda: None)  # nothing is kept for later texts

    def add(self, seq: int) -> None:
        """A new sequence, in the empty state. Raises `CacheFullError` where no slot is left."""
        if seq in self._entries:
            raise CapabilityError(f"states: sequence {seq} exists already: free it first")
        slot = self._take()
        self._states[slot] = self.empty
        self._entries[seq] = _Entry(slot=slot)

    def ids(self) -> list[int]:
        return list(self._entries)

    def length(self, seq: int) -> int:
        """How many rows its state has read."""
        return self._entries[seq].length

    def state(self, seq: int) -> Tensor:
        """Its state as it stands, a view: who changes it calls `advance`."""
        return self._states[self._entries[seq].slot]

    def advance(self, seq: int, n: int, state: Tensor) -> None:
        """`state` is that after n rows more."""
        entry = self._entries[seq]
        self._states[entry.slot] = state
        entry.length += n

    def fork(self, seq: int, new: int) -> None:
        """`new` begins with a copy of the state of `seq`."""
        self.add(new)
        self.advance(new, self.length(seq), self.state(seq))

    def free(self, seq: int) -> None:
        self._release(self._entries.pop(seq).slot)

    def check(self) -> None:
        self._settle()
        for seq, entry in self._entries.items():
            if self.poison and bool(self._states[entry.slot].isnan().any()):
                raise AssertionError(f"states: the state of sequence {seq} is that of a free slot")
        named = Counter(self._free + self._taken())
        wrong = [slot for slot in range(len(self._states)) if named[slot] != 1]
        if wrong:
            raise AssertionError(f"states: slots {wrong} are named {[named[slot] for slot in wrong]} times, not once")
        if self.poison and not bool(self._states[self._free].isnan().all()):
            raise AssertionError("states: a free slot was written")

    def _taken(self) -> list[int]:
        return [entry.slot for entry in self._entries.values()]

    def _settle(self) -> None:
        if not len(self._states):
            self._grow(_FIRST if self._pool is None else self._pool.settle())

    @torch.inference_mode(False)  # a store that grew while serving must still change outside
    def _grow(self, slots: int) -> None:
        """So many slots, those that there are among them."""
        before = len(self._states)
        grown = torch.full((slots, *self.empty.shape), torch.nan, dtype=self.empty.dtype, device=self.empty.device)
        grown[:before] = self._states
        self._states = grown
        self._free[:0] = reversed(range(before, slots))

    def _take(self) -> int:
        self._settle()
        if not self._free:
            if self._pool is not None:
                raise CacheFullError(
                    f"states: all {len(self._states)} slots are taken: run fewer sequences at once, or give the pool "
                    "more memory"
                )
            self._grow(2 * len(self._states))
        return self._free.pop()

    def _release(self, slot: int) -> None:
        if self.poison:
            self._states[slot] = torch.nan
        self._free.append(slot)


def refuse_over_states(drafter: str, needs: Needs, guard: float = 0.0) -> None:
    """Raise `CapabilityError` for a drafter that runs parts of the target, whose states it would move on.

    Rows that it wrote into a key/value cache would be written again, or dropped; a state has no such rows. Nor can a
    `guard` read rows again that were committed.
    """
    if guard > 0:
        raise CapabilityError(
            f"guard={guard:g} reads committed rows again, and the target's states cannot go back to before them "
            "(can_trim=False): let each row be exact (exact=True), or give guard=0"
        )
    if needs.layer_subset or needs.resume_layer:
        what = "leaves layers of the target out" if needs.layer_subset else "begins a pass in the middle of the target"
        raise CapabilityError(
            f"drafter {drafter!r} {what}, and the target's states cannot be trimmed afterwards (can_trim=False): take "
            "a drafter that asks for whole passes, such as 'ngram' or 'draft_model'"
        )
