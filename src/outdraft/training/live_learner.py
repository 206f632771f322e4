"""The process that learns in a room: requests of its disk in, versions out. It may be killed at any moment.

    for each tenant in turn: requests -> Candidates -> passed: versions/N, current      rolled back: current

What it knows lies in the room: the ledger counts tries before they are judged, so none is forgotten, and says from
which request on it learns again. `current` is followed where it was changed by hand: that version is watched.
"""

import ctypes
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, process_time, sleep
from typing import Any

from outdraft.adapt.options import AdaptOptions
from outdraft.adapt.room import Room
from outdraft.adapt.spool import Spooled, read_spool
from outdraft.core.registry import read_options
from outdraft.models.networks.base import Decoder
from outdraft.training.candidates import Candidates, Turn
from outdraft.training.computing import Format, open_target
from outdraft.training.corpus import LEAST
from outdraft.training.live import LiveDraft, ServedRequest, Weights

_SOME = 4  # requests of a turn
_HOUR = 3600.0
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux
_REST = 1.0  # seconds, where there is nothing to do


class Pupil:
    """The draft of one tenant."""

    def __init__(self, room: Room, name: str, options: AdaptOptions, target: tuple[Decoder, Format]) -> None:
        self._room, self._tenant, self._begun = room, room.tenant(name), room.pair.draft
        self.version = self._tenant.version
        self.live = LiveDraft(target, self._tenant.draft or self._begun, options.learning)
        ledger = self._tenant.ledger()
        self._place = max((one["place"] for one in ledger if "place" in one), default=0)
        self.candidates = Candidates(
            live=self.live,
            gate=options.gating,
            tell=self._tell,
            first=options.first,
            tries=sum(one["what"] == "tried" for one in ledger),
            watches=sum(one["what"] in ("watched", "passed") for one in ledger),
        )
        self.candidates.recall(
            request_of(one) for one in read_spool(self._tenant.requests) if one.number <= self._place
        )
        served = [one for one in ledger if one["what"] in ("passed", "watched", "kept", "rolled back")]
        if served and served[-1]["what"] in ("passed", "watched") and served[-1]["version"] == self.version:
            self.candidates.watch(self._weights(served[-1]["before"]))
        self._now = self._place

    def turn(self) -> bool:
        """Take a few requests; whether there were any."""
        if self._tenant.version != self.version:
            self._follow(self._tenant.version)
        some: list[Spooled] = []
        for one in read_spool(self._tenant.requests, self._now):
            some.append(one)
            if len(some) == _SOME:
                break
        for one in some:
            self._now = one.number
            self.candidates.take(request_of(one))
        return bool(some)

    def _follow(self, version: int) -> None:
        """Another version serves than this process had chosen."""
        before, weights = self.version, self._weights(version)
        self.version = version
        if weights is None:
            return
        known = self.live.serving
        self.candidates.replace(weights, known if version else None)
        self._tenant.note("watched" if version else "reset", version=version, before=before, place=self._now)

    def _weights(self, version: int) -> Weights | None:
        place = self._tenant.place(version) if version else self._begun
        return self.live.read(place) if place.is_dir() else None

    def _tell(self, turn: Turn, serving: Weights, number: int, reason: str) -> None:
        before = self.version
        if turn == "passed":
            self.version = self._tenant.publish(lambda place: self.live.write(serving, place))
        elif turn == "rolled back":
            ledger = self._tenant.ledger()
            told = [one for one in ledger if one["what"] in ("passed", "watched") and one["version"] == before]
            self.version = told[-1]["before"] if told else 0
            self._tenant.point(self.version)
        more = {} if turn == "tried" else {"reason": reason, "place": self._now}
        self._tenant.note(turn, number=number, version=self.version, before=before, tokens=self.live.num_tokens, **more)


class LiveLearner:
    """Of a room. Raises `ConfigError` where its target or its draft is another one than it was made for."""

    def __init__(self, room: Room) -> None:
        room.require_unchanged()
        self._room, self._options = room, read_options(AdaptOptions, room.said["options"], "the room")
        self._target = open_target(room.pair.target, "auto", "cpu")
        self._pupils: dict[str, Pupil] = {}
        self._hour, self._spent = monotonic(), process_time()

    def run(self, goes_on: Callable[[], bool]) -> None:
        """Learn until `goes_on` says no; it is asked between two requests."""
        while goes_on():
            if (
                self._room.is_frozen
                or self._is_over_budget()
                or not any([self._turn(one) for one in self._room.tenants()])
            ):
                sleep(_REST)

    def _turn(self, name: str) -> bool:
        folder = self._room.tenant(name).requests
        if name not in self._pupils:
            if next(iter(read_spool(folder)), None) is None:
                return False
            self._pupils[name] = Pupil(self._room, name, self._options, self._target)
        elif not folder.is_dir():  # the tenant was reset
            del self._pupils[name]
            return False
        return self._pupils[name].turn()

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
    return ServedRequest(prompt=tuple(ids[0] or (0,)), answer=tuple(ids[1] or ()), domain=str(said.get("domain", "")))


def lower_priority(*, ends_with_parent: bool) -> None:
    """Of this process, to idle. `ends_with_parent`: Linux ends it then, even while it is paused."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError, AttributeError):
        os.nice(19)
    if ends_with_parent:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
