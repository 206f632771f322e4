"""The process that learns in a room: requests of its disk in, versions out. It may be killed at any moment.

    for each tenant in turn: requests -> Candidates -> passed: versions/N, current      rolled back: current

What it knows lies in the room: the ledger counts tries before they are judged, so none is forgotten, and says from
which request on it learns again. `current` is followed where it was changed by hand: that version is watched.
"""

import ctypes
import logging
import os
import signal
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from time import monotonic, process_time, sleep
from typing import Any

from outdraft.adapt.domains import Domains
from outdraft.adapt.kinds import Cure
from outdraft.adapt.options import AdaptOptions
from outdraft.adapt.room import AdaptRoom
from outdraft.adapt.spool import Spooled, read_spool, spool_files
from outdraft.core.registry import read_options
from outdraft.models.networks.base import Decoder
from outdraft.training.candidates import Candidates, Turn
from outdraft.training.computing import Format, open_target
from outdraft.training.corpus import LEAST
from outdraft.training.live import DraftWeights, LiveDraft
from outdraft.training.served import ServedRequest
from outdraft.training.treatment import Treatment

_SOME = 4  # requests of a turn
_MOST_PUPILS = 4  # drafts in memory; one with nothing to do makes room, and begins again at its last decision
_AFTER_AN_ERROR = 300.0  # seconds
_log = logging.getLogger(__name__)
_HOUR = 3600.0
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
_REST = 1.0  # seconds, where there is nothing to do


class Pupil:
    """The draft of one tenant."""

    def __init__(self, room: AdaptRoom, name: str, options: AdaptOptions, target: tuple[Decoder, Format]) -> None:
        self._room, self._tenant, self._begun = room, room.tenant(name), room.pair.draft
        self._born = self._tenant.born
        self.version = self._tenant.version
        self.live = LiveDraft(target, self._tenant.draft or self._begun, options.learning, begun=self._begun)
        self._domains, self._treatment = Domains(), Treatment(self.live, room, name)
        ledger = self._tenant.ledger()
        self._seen: dict[str, int] = next((dict(one["seen"]) for one in reversed(ledger) if "seen" in one), {})
        self.candidates = Candidates(
            live=self.live,
            gate=options.gating,
            tell=self._tell,
            first=options.first,
            tries=sum(one["what"] == "tried" for one in ledger),
            watches=sum(one["what"] == "watched" for one in ledger),
        )
        known = (one for one in read_spool(self._tenant.requests) if one.line <= self._seen.get(one.file, 0))
        self.candidates.recall(self._request(one) for one in known)
        self._watch_on([one for one in ledger if one["what"] in ("passed", "kept", "rolled back", "pointed")])
        self._treatment.begin_run()

    def _watch_on(self, served: list[dict[str, Any]]) -> None:
        """Watch what serves, where an earlier process had not decided about it. `served`: how versions changed."""
        last: dict[str, Any] = served[-1] if served else {"what": "", "version": 0, "before": 0}
        if last["version"] != self.version:  # published or pointed to, and not in the ledger
            self._tenant.note("pointed", version=self.version, before=last["version"])
            last = {"what": "pointed", "before": last["version"]}
        if self.version and last["what"] in ("passed", "pointed"):
            self.candidates.watch(self._weights(last["before"]))

    @property
    def is_gone(self) -> bool:
        """Whether the tenant was reset: what was learned of it is not to be used."""
        return self._tenant.born != self._born

    def turn(self) -> bool:
        """Take a few requests, or learn again from earlier ones; whether there was anything to do."""
        if self._room.is_frozen or self.is_gone:
            return False
        if self._tenant.version != self.version:
            self._follow(self._tenant.version)
        some = list(islice(read_spool(self._tenant.requests, self._seen), _SOME))
        self._seen.update((one.file, one.line) for one in some)
        self.candidates.take([self._request(one) for one in some])
        if self.live.cure is Cure.MEND:
            if some:
                self._treatment.begin_run()
            return bool(some)
        return bool(some) or self.candidates.rehearse()

    def _request(self, one: Spooled) -> ServedRequest:
        made = request_of(one)
        self._treatment.see(made.prompt)
        return replace(made, domain=self._domains.of(made.prompt))

    def _follow(self, version: int) -> None:
        """Another version serves than this process had chosen."""
        before, weights, known = self.version, self._weights(version), self.live.serving
        if weights is None:
            return
        self.version = version
        self._tenant.note("pointed", version=version, before=before, seen=self.kept_files())
        self.candidates.replace(weights, known if version else None)
        self._treatment.begin_run()

    def _weights(self, version: int) -> DraftWeights | None:
        place = self._tenant.place(version) if version else self._begun
        return self.live.read(place) if place.is_dir() else None

    def _tell(self, turn: Turn, serving: DraftWeights, number: int, reason: str) -> None:
        while self._room.is_frozen:  # no version changes until it goes on
            sleep(_REST or 0.01)
        if self.is_gone:
            raise TenantGoneError
        before = self.version
        if turn == "passed":
            self.version = self._tenant.publish(lambda place: self.live.write(serving, place))
        elif turn == "rolled back":
            told = [one for one in self._tenant.ledger() if one["what"] in ("passed", "pointed")]
            earlier = next((one["before"] for one in reversed(told) if one["version"] == before), 0)
            self.version = earlier if self._tenant.place(earlier).is_dir() else 0
            self._tenant.point(self.version)
        went = turn in ("passed", "failed", "rolled back")  # back, or on to what serves: it is learned from here on
        more: dict[str, Any] = {"reason": reason} if reason else {}
        if went:
            more["seen"] = self.kept_files()
        self._tenant.note(turn, number=number, version=self.version, before=before, tokens=self.live.num_tokens, **more)
        if went or turn == "tried":
            self._treatment.begin_run()

    def kept_files(self) -> dict[str, int]:
        """How far each file has been read; it begins again there after a restart."""
        kept = {one.stem for one in spool_files(self._tenant.requests)}
        self._seen = {file: line for file, line in self._seen.items() if file in kept}
        return dict(self._seen)


class TenantGoneError(Exception):
    """A tenant was reset while its draft was learning."""


class LiveLearner:
    """Of a room. Raises `ConfigError` where its target or its draft is another one than it was made for."""

    def __init__(self, room: AdaptRoom) -> None:
        room.require_unchanged()
        self._room, self._options = room, read_options(AdaptOptions, room.said["options"], "the room")
        self._target = open_target(room.pair.target, "auto", "cpu")
        self._pupils: dict[str, Pupil] = {}
        self._worked = ""  # who worked last
        self._at_work = set[str]()  # who had something to do
        self._not_before: dict[str, float] = {}  # of tenants whose turn broke
        self._hour, self._spent = monotonic(), process_time()

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Learn until `goes_on` says no; it is asked between two turns."""
        while goes_on():
            if self._room.is_frozen or self._is_over_budget() or not any(map(self._attempt, self._names())):
                sleep(_REST)

    def _names(self) -> list[str]:
        """Whose turn it is, the one that worked last at the end."""
        names = sorted(self._room.tenants())
        after = bisect_right(names, self._worked)
        return names[after:] + names[:after]

    def _attempt(self, name: str) -> bool:
        """A turn; one that breaks costs the other tenants nothing, and is not tried again at once."""
        if monotonic() < self._not_before.get(name, 0.0):
            return False
        try:
            if self._turn(name):
                self._worked = name
                return True
        except TenantGoneError:
            self._pupils.pop(name, None)
        except Exception as error:
            pupil = self._pupils.pop(name, None)
            _log.exception("a turn of %s broke", name)
            if pupil is not None and not pupil.is_gone:
                seen = pupil.kept_files()  # what broke it is not read again
                self._room.tenant(name).note("broke", reason=f"{type(error).__name__}: {error}"[:300], seen=seen)
            self._not_before[name] = monotonic() + _AFTER_AN_ERROR
        return False

    def _turn(self, name: str) -> bool:
        if (known := self._pupils.get(name)) is not None and known.is_gone:
            del self._pupils[name]
        if name not in self._pupils:
            if next(iter(read_spool(self._room.tenant(name).requests)), None) is None:
                return False
            idle = [one for one in self._pupils if one not in self._at_work]
            if len(self._pupils) >= _MOST_PUPILS and not idle:
                return False
            for one in idle[: max(0, len(self._pupils) - _MOST_PUPILS + 1)]:
                del self._pupils[one]
            self._pupils[name] = Pupil(self._room, name, self._options, self._target)
        self._at_work.discard(name)
        if worked := self._pupils[name].turn():
            self._at_work.add(name)
        return worked

    def _is_over_budget(self) -> bool:
        if monotonic() - self._hour >= _HOUR:
            self._hour, self._spent = monotonic(), process_time()
        return process_time() - self._spent >= self._options.seconds_an_hour


def request_of(one: Spooled) -> ServedRequest:
    """What the engine wrote. What is none becomes a request that is too short to be learned from."""
    said: Any = one.said
    ids = [said.get(name) if isinstance(said, dict) else None for name in ("prompt_token_ids", "token_ids")]
    if not all(isinstance(some, list) and all(type(token) is int for token in some) for some in ids):
        return ServedRequest(prompt=(0,), answer=(0,) * (LEAST - 1))
    return ServedRequest(prompt=tuple(ids[0] or (0,)), answer=tuple(ids[1] or ()))


def lower_priority(*, ends_with_parent: bool) -> None:
    """Of this process, to idle. `ends_with_parent`: Linux ends it then, even while it is paused."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError, AttributeError):
        os.nice(19)
    if ends_with_parent:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
