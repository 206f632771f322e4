"""A `StateStore` with copies of states, which a target needs to go back, or to begin from what another text read.

    slot   0: the state of A after 37 rows     1: of A after 32, for A alone     2: after "Once upon a ...", for all

A copy is kept for its sequence, by its length (`snapshot`, `restore`), or for every later text that begins alike, at
the end of a page (`publish`, `adopt`), found as pages are (`cache/prefix.py`). Published copies stand in slots that no
text wants now; the least recently used goes first.
"""

from collections import defaultdict
from collections.abc import Hashable
from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.cache.pool import PagePool
from outdraft.cache.prefix import PrefixTree
from outdraft.cache.state import StateStore
from outdraft.core.cache import PAGE
from outdraft.options.errors import CapabilityError


class CopiedStates(StateStore):
    """States in the slots of a pool, those of copies among them."""

    def __init__(self, empty: Tensor, *, pool: PagePool, poison: bool = False) -> None:
        super().__init__(empty, pool=pool, poison=poison)
        pool.forgets.append(self.forget)
        self._copies: dict[int, dict[int, int]] = defaultdict(dict)  # sequence -> length -> slot
        self._prefixes = PrefixTree()

    @property
    def num_slots(self) -> int:
        self._settle()
        return len(self._states)

    @property
    def num_free(self) -> int:
        """Slots that no sequence has, those of published copies among them."""
        self._settle()
        return len(self._free) + self._prefixes.num_kept

    def snapshot(self, seq: int) -> None:
        """Keep a copy for `restore`, until it goes back before it or ends. `CacheFullError` where no slot is left."""
        copies, length = self._copies[seq], self.length(seq)
        if length not in copies:
            copies[length] = slot = self._take()
            self._states[slot] = self.state(seq)

    def restore(self, seq: int, length: int) -> None:
        """Go back to the copy of exactly this length, which is used up, with all later ones."""
        entry, copies = self._entries[seq], self._copies[seq]
        if length not in copies:
            raise CapabilityError(
                f"states: sequence {seq} cannot go back to {length} rows: it has copies of {sorted(copies)}; "
                "take a snapshot before the pass"
            )
        self._states[entry.slot] = self._states[copies[length]]
        entry.length = length
        self._drop(seq, length)

    def publish(self, seq: int, salt: Hashable, tokens: Seq[int]) -> bool:
        """Let later texts that begin with these tokens begin from its state, which has read just them: whole pages.

        Returns whether a copy is there: not where no slot is left, or where the copy of the page before is gone.
        """
        length = self.length(seq)
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
        assert not self.length(seq), "a sequence adopts a state before it has read anything"
        if path := self._used(salt, tokens):
            self.advance(seq, len(path) * PAGE, self._states[path[-1]])
        return self.length(seq)

    def free(self, seq: int) -> None:
        """Forget the sequence and its own copies; what it published stays while there is room."""
        self._drop(seq, 0)
        super().free(seq)

    def forget(self) -> None:
        """Keep nothing for later texts."""
        for slot in self._prefixes.clear():
            self._release(slot)

    def check(self) -> None:
        super().check()
        self._prefixes.check()
        for seq, copies in self._copies.items():
            if any(length > self.length(seq) for length in copies):
                raise AssertionError(f"states: sequence {seq} has read {self.length(seq)} rows, and has copies beyond")

    def _taken(self) -> list[int]:
        copied = [slot for copies in self._copies.values() for slot in copies.values()]
        return [*super()._taken(), *copied, *self._prefixes.kept]

    def _take(self) -> int:
        self._settle()
        if not self._free and self._prefixes.num_kept:
            self._release(self._prefixes.evict())
        return super()._take()

    def _used(self, salt: Hashable, tokens: Seq[int]) -> list[int]:
        """The published copies of this text, the longest last; they are the last to go now."""
        path = list(self._prefixes.find(salt, tokens))
        for slot in path:
            self._prefixes.take(slot)
            self._prefixes.keep(slot)
        return path

    def _drop(self, seq: int, length: int) -> None:
        copies = self._copies[seq]
        for at in [at for at in copies if at >= length]:
            self._release(copies.pop(at))
        if not copies:
            del self._copies[seq]
