"""A drafter whose network may be replaced while requests are decoded: each text keeps the one that it began with.

    adopt(DIR)    texts a b | c d         a and b go on with the old network, whose rows they hold;
                  version 0 0 | 1 1       c and d begin with the one in DIR. The last old text takes the old one along

What a network has read of a text lies in rows that only this network made, so a text that changed would have to be read
again. Memory holds both networks for as long as a text of the old one runs; their rows lie in one cache, and no text
begins from rows of another network. Requests of a cache salt may have a network of their own.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from outdraft.cache.shelf import CacheShelf
from outdraft.core.adoption import Adoption
from outdraft.core.draft import Draft
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.registry import AnyDrafter
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.options.base import NetworkOptions
from outdraft.options.errors import CapabilityError, ConfigError


def build_drafter(method: AnyDrafter, options: Any, port: Any) -> Drafter:
    """`method.build`; where the options or the target's origin say so, with a network that may be replaced.

    Raises `CapabilityError` where the drafter works beside the target's pass, since it is then asked without its verbs.
    """
    if not isinstance(options, NetworkOptions) or not (options.adopts or port.origin.renews):
        made: Drafter = method.build(options, port)
        return made
    shelf = CacheShelf()
    port = replace(port, cache=replace(port.cache, shelf=shelf))
    made = method.build(options, port)
    if made.traits.ahead is not None:
        raise CapabilityError(
            f"drafter {method.name!r} works beside the target's pass, where its network cannot be replaced: leave "
            "adopts out"
        )

    def make(place: Path) -> Drafter:
        shelf.begin()
        there: Any = replace(options, model=str(place))  # type: ignore[call-arg]
        other: Drafter = method.build(there, port)
        return other

    return RenewingDrafter(made, make)


def newest(drafter: Drafter) -> Drafter:
    """Itself, or what texts that begin now are drafted by."""
    return drafter.newest if isinstance(drafter, RenewingDrafter) else drafter


class RenewingDrafter:
    """`first`: over the network that was asked for; `make`: another, over the network in a directory."""

    def __init__(self, first: Drafter, make: Callable[[Path], Drafter]) -> None:
        self.newest, self._make, self._making = first, make, Lock()
        self.heard: Callable[[Seq[Seen]], None] | None = None  # also hears of texts that the newest network drafts
        self._for: dict[str, tuple[int, Drafter]] = {}  # cache salt, "" is none -> whose network is its own
        self._version = 0  # of `newest`
        self._adoption = Adoption(self._take, of=self._version_of, prepare=self._prepare, take_for=self._take_for)
        self._begun: dict[int, tuple[int, Drafter]] = {}  # sequence -> version, and who drafts for it

    @property
    def needs(self) -> Needs:
        return self.newest.needs

    @property
    def traits(self) -> Traits:
        """The newest network's."""
        return replace(self.newest.traits, adopt=self._adoption)

    def begin(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._begun[seq.id] = made = self._now(seq)
            made[1].begin([seq])

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """One call for each version that is asked."""
        if len(asked := self._who([seq.id for seq in seqs])) == 1:
            return asked[0].propose(seqs, budgets)
        drafts: dict[int, Draft] = {}
        for drafter in asked:
            own = [i for i, seq in enumerate(seqs) if self._begun[seq.id][1] is drafter]
            drafts.update(zip(own, drafter.propose([seqs[i] for i in own], [budgets[i] for i in own]), strict=True))
        return [drafts[i] for i in range(len(seqs))]

    def observe(self, seen: Seq[Seen]) -> None:
        for drafter in self._who([one.seq.id for one in seen]):
            drafter.observe([one for one in seen if self._begun[one.seq.id][1] is drafter])
        if self.heard is not None:
            self.heard([one for one in seen if self._begun[one.seq.id] == self._now(one.seq)])

    def end(self, seqs: Seq[Sequence]) -> None:
        for drafter in self._who([seq.id for seq in seqs if seq.id in self._begun]):
            drafter.end([seq for seq in seqs if seq.id in self._begun and self._begun[seq.id][1] is drafter])
        for seq in seqs:
            self._begun.pop(seq.id, None)

    def _now(self, seq: Sequence) -> tuple[int, Drafter]:
        """Who drafts for a text of this salt that begins now."""
        return self._for.get(seq.request.cache_salt or "") or (self._version, self.newest)

    def _who(self, ids: Seq[int]) -> list[Drafter]:
        return list({id(drafter): drafter for _, drafter in map(self._begun.__getitem__, ids)}.values())

    def _version_of(self, seq: int) -> int:
        return self._begun[seq][0] if seq in self._begun else self._adoption.version

    def _prepare(self, place: Path) -> Drafter:
        """Raises what reading the network raises, and `ConfigError` for one that reads other states of the target."""
        with self._making:
            made = self._make(place)
        if made.needs != self.newest.needs:
            raise ConfigError(
                f"{place} reads the target's states after layers {made.needs.taps}, and what it is to replace after "
                f"{self.newest.needs.taps}: give weights of the same network"
            )
        return made

    def _take(self, made: Drafter) -> None:
        self.newest, self._version = made, self._adoption.version + 1

    def _take_for(self, made: Drafter, salt: str) -> None:
        self._for[salt] = self._adoption.version + 1, made
