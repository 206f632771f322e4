"""States of layers that cannot trim, one for each sequence, and copies of them to go back to or to begin from.

    slot   0: the state of A after 37 rows     1: of A after 32, for A alone     2: after "Once upon a ...", for all

A recurrent layer folds every row into one state of fixed size, so a dropped row cannot be taken out again. Who wants to
go back needs a copy from before. A copy is kept for its sequence, by its length (`snapshot`, `restore`), or for every
later text that begins alike, at the end of a page (`publish`, `adopt`), found as pages are (`cache/prefix.py`). No slot
is ever shared: to begin from a copy is to copy it, so that no write meets another's state. Published copies stand in
slots that no text wants now; the least recently used goes first.

In a `PagePool` a state is one more thing that a page of text takes: there are as many slots as pages. A sequence has
one page at least, so one with room for its rows has room for its state.
"""

from collections import Counter
from collections.abc import Hashable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.cache.pool import PagePool
from outdraft.cache.prefix import PrefixTree
from outdraft.core.cache import PAGE
from outdraft.core.target import Needs
from outdraft.options.errors import CacheFullError, CapabilityError

_FIRST = 8  # slots of a store that grows


@dataclass(slots=True, kw_only=True)
class _Entry:
    """One sequence: the slot of its state, how many rows that has read, and its own copies by their length."""

    slot: int
    length: int = 0
    copies: dict[int, int] = field(default_factory=dict)


class StateStore:
    """States in one block of slots; it keeps no tensor that it is given. `empty`: the state before any row.

    `num_slots`, or as many as the `pool` has pages; neither: their number doubles as need be. `poison` (tests): NaN
    where nothing stands.
    """

    can_trim = False

    def __init__(
        self, empty: Tensor, *, num_slots: int | None = None, pool: PagePool | None = None, poison: bool = False
    ) -> None:
        if num_slots is not None and pool is not None:
            raise CapabilityError(f"states: num_slots={num_slots} and pool={pool}: give one of them")
        if num_slots is not None and num_slots < 1:
            raise CapabilityError(f"states: num_slots={num_slots} is out of range: it must be at least 1")
        self.empty, self._pool, self.poison = empty, pool, poison
        self._states = empty.new_empty((0, *empty.shape))  # [slots, *shape], made when the first sequence comes
        self._num_slots = num_slots
        self._free: list[int] = []
        self._entries: dict[int, _Entry] = {}
        self._prefixes = PrefixTree()
        if pool is not None:
            pool.join(self.state_bytes, self.forget)

    @property
    def state_bytes(self) -> int:
        """Bytes of one state, that is, of one slot of the pool."""
        return self.empty.numel() * self.empty.element_size()

    @property
    def num_slots(self) -> int:
        """How many states there is room for."""
        self._settle()
        return len(self._states)

    @property
    def num_free(self) -> int:
        """Slots that no sequence has, those of published copies among them."""
        self._settle()
        return len(self._free) + self._prefixes.num_kept

    @property
    def num_published(self) -> int:
        """Copies that later texts may begin from."""
        return self._prefixes.num_kept

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

    def snapshot(self, seq: int) -> None:
        """Keep a copy for `restore`, until it goes back before it or ends. `CacheFullError` where no slot is left."""
        entry = self._entries[seq]
        if entry.length not in entry.copies:
            entry.copies[entry.length] = slot = self._take()
            self._states[slot] = self._states[entry.slot]

    def restore(self, seq: int, length: int) -> None:
        """Go back to the copy of exactly this length, which is used up, with all later ones."""
        entry = self._entries[seq]
        if length not in entry.copies:
            raise CapabilityError(
                f"states: sequence {seq} cannot go back to {length} rows: it has copies of {sorted(entry.copies)}; "
                "take a snapshot before the pass"
            )
        self._states[entry.slot] = self._states[entry.copies[length]]
        entry.length = length
        self._drop(entry, length)

    def publish(self, seq: int, salt: Hashable, tokens: Seq[int]) -> bool:
        """Let later texts that begin with these tokens begin from its state, which has read just them: whole pages.

        Returns whether a copy is there: not where no slot is left, or where the copy of the page before is gone.
        """
        length = self._entries[seq].length
        if length != len(tokens) or not length or length % PAGE:
            raise CapabilityError(
                f"states: sequence {seq} has read {length} rows and would publish {len(tokens)}: publish the state at "
                f"the end of a page of {PAGE}"
            )
        path = self._used(salt, tokens)
        if len(path) == length // PAGE:
            return True
        if len(path) < length // PAGE - 1:
            return False
        for slot in path:  # those must stay while room is made
            self._prefixes.take(slot)
        found = bool(self._free or self._prefixes.num_kept)
        if found:
            path.append(own := self._take())
            self._states[own] = self.state(seq)
            self._prefixes.publish(salt, path[-2] if len(path) > 1 else None, tokens[length - PAGE :], own)
        for slot in path:
            self._prefixes.keep(slot)
        return found

    def adopt(self, seq: int, salt: Hashable, tokens: Seq[int]) -> int:
        """Let an empty sequence begin from the longest published beginning of these tokens; returns its length."""
        entry = self._entries[seq]
        assert not entry.length, "a sequence adopts a state before it has read anything"
        if path := self._used(salt, tokens):
            self._states[entry.slot] = self._states[path[-1]]
            entry.length = len(path) * PAGE
        return entry.length

    def fork(self, seq: int, new: int) -> None:
        """`new` begins with a copy of the state of `seq`."""
        self.add(new)
        self.advance(new, self.length(seq), self.state(seq))

    def free(self, seq: int) -> None:
        """Forget the sequence and its own copies; what it published stays while there is room."""
        entry = self._entries.pop(seq)
        self._drop(entry, 0)
        self._release(entry.slot)

    def forget(self) -> None:
        """Keep nothing for later texts."""
        for slot in self._prefixes.clear():
            self._release(slot)

    def check(self) -> None:
        self._settle()
        named = Counter(self._free + self._prefixes.kept)
        for seq, entry in self._entries.items():
            named.update([entry.slot, *entry.copies.values()])
            if any(length > entry.length for length in entry.copies):
                raise AssertionError(f"states: sequence {seq} has read {entry.length} rows, and has copies beyond")
            if self.poison and bool(self._states[entry.slot].isnan().any()):
                raise AssertionError(f"states: the state of sequence {seq} is that of a free slot")
        wrong = [slot for slot in range(len(self._states)) if named[slot] != 1]
        if wrong:
            raise AssertionError(f"states: slots {wrong} are named {[named[slot] for slot in wrong]} times, not once")
        self._prefixes.check()
        if self.poison and not bool(self._states[self._free].isnan().all()):
            raise AssertionError("states: a free slot was written")

    def _used(self, salt: Hashable, tokens: Seq[int]) -> list[int]:
        """The published copies of this text, the longest last; they are the last to go now."""
        path = list(self._prefixes.find(salt, tokens))
        for slot in path:
            self._prefixes.take(slot)
            self._prefixes.keep(slot)
        return path

    def _settle(self) -> None:
        if not len(self._states):
            self._grow(self._pool.settle() if self._pool is not None else self._num_slots or _FIRST)

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
            if not self._prefixes.num_kept:
                if self._pool is None and self._num_slots is None:
                    self._grow(2 * len(self._states))
                    return self._free.pop()
                raise CacheFullError(
                    f"states: all {len(self._states)} slots are taken: run fewer sequences at once, or give the pool "
                    "more memory"
                )
            self._release(self._prefixes.evict())
        return self._free.pop()

    def _drop(self, entry: _Entry, length: int) -> None:
        for at in [at for at in entry.copies if at >= length]:
            self._release(entry.copies.pop(at))

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
