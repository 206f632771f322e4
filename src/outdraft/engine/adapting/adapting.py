"""A draft that keeps learning beside an engine: requests go out to the room's disk, versions come in from it.

    engine's thread   ServedWatch ----queue----+          asks nothing of a disk, and waits for none
    this thread       room/requests <----------+  a second later: is `current` another?  -> adopt, between two steps
    learner           room/requests -> learns, judges -> room/versions, room/current        a process of its own

Whether a version is good is the learner's to say (`training/live_learner.py`); here `current` is followed, forwards and
back. Nothing here can stop a request: what fails is logged once, and the draft that serves goes on.
"""

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, reduce
from pathlib import Path
from queue import Empty
from threading import Event, Thread, current_thread
from time import monotonic, time
from typing import Any
from weakref import ref

from outdraft.adapt.acceptance_record import RECORD, AcceptanceRecord
from outdraft.adapt.diagnose import diagnose
from outdraft.adapt.examined import Bin, Examined
from outdraft.adapt.observe import Observed
from outdraft.adapt.options import AdaptOptions
from outdraft.adapt.room import SHARED, AdaptRoom, Pair, last_verdict
from outdraft.adapt.spool import SpoolWriter, clean_spool, spool_files
from outdraft.core.drafter import inner
from outdraft.decode.parts import Parts
from outdraft.drafters.shared.renewing import RenewingDrafter
from outdraft.engine.adapting.learner_process import LearnerProcess
from outdraft.engine.adapting.served import Served, ServedWatch
from outdraft.engine.callers.adoption import hand_over, only_adoption
from outdraft.engine.callers.thread import EngineThread
from outdraft.kernels.threads import torch_threads
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.paths import user_path
from outdraft.weights.user_cache import is_kept, user_cache

_DAY = 86400.0
_CLEAN = 3600.0  # seconds between two looks for what is too old
_FRESH = 3.0  # seconds for which a status is given again
_TOGETHER = 64  # requests that are written between two other things
_MOST_SAID = 1000  # errors
_REST = 0.05  # seconds without a request after which the learner goes on
_LOOK = 1.0  # between two looks at the room
_TELL = 10.0  # between two writings of what was observed
_log = logging.getLogger("outdraft.adapt")


class Adapting:
    """Of one engine. Raises `CapabilityError` where not exactly one drafter has a network that can be replaced, and for
    a draft without the record of its training."""

    def __init__(self, thread: EngineThread, target: Path, options: AdaptOptions) -> None:
        self.options = options
        self._engine = ref(thread)  # it ends with its `LLM`, and so does this
        self._drafter, home = _only_drafter(thread.engine.parts)
        pair = Pair(target=target, draft=home)
        self.room = AdaptRoom.open(_place(options, pair), pair, _told(options))
        self.learner = LearnerProcess(self.room.path, options.threads) if options.learner else None
        self.watch = ServedWatch(
            opt_in=options.opt_in,
            window=options.learning.longest_window,
            max_tenants=options.max_tenants,
            tenants_a_key=options.tenants_a_key,
            busy=self._pause,
            idle=self._note_idle,
        )
        self.serving: dict[str, tuple[str, int]] = {}  # folder of a tenant -> when it was born, version
        self._spools: dict[str, SpoolWriter] = {}
        self._folders: dict[str, str] = {"": SHARED}  # salt -> folder of the tenant
        self._idle_since, self._num_kept, self._said = monotonic(), 0, set[str]()
        self._status, self._status_at = dict[str, Any](), -_FRESH
        self._ending = Event()
        thread.ask(lambda engine: engine.watch.add(self.watch))
        self._drafter.heard = self.watch.observe
        self._attempt(self._follow)  # what was learned before serves from the first request on
        self._thread = Thread(target=self._run, name="outdraft-adapt", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """What is known, as plain data: versions, requests, the learner, guesses by domain, what is wrong.

        At most a few seconds old, so that asking often costs the engine nothing.
        """
        if monotonic() - self._status_at >= _FRESH:
            self._status, self._status_at = self._look(), monotonic()
        return self._status

    def _look(self) -> dict[str, Any]:
        domains = self._observed()
        whole, shared = _joined(domains), self.room.tenant(SHARED)
        learner = "none" if self.learner is None else "paused" if self.learner.is_paused else "running"
        return {
            "room": str(self.room.path),
            "version": self.serving.get(SHARED, ("", 0))[1],
            "tenants": len(self.watch.domains),
            "requests_kept": self._num_kept,
            "requests_left_out": self.watch.num_left_out,
            "learner": learner if self.learner is None or self.learner.is_alive else "not running",
            "frozen": self.room.is_frozen,
            "is_alive": self._thread.is_alive(),
            "rounds": whole.whole.rounds,
            "marginal_acceptance": _rounded(whole.recent.nearness),
            "acceptance": _rounded(whole.recent.acceptance),
            "first_rejection": whole.whole.first_rejection,
            "hazards": _rounded(whole.whole.hazards),
            "calibration": [_told_of(one) for one in whole.calibration if one.count],
            "domains": {kind: _rates(one.whole) for kind, one in domains.items()},
            "verdict": last_verdict(shared),
            "diagnosis": diagnose(whole, AcceptanceRecord.promised(shared.draft or self.room.pair.draft)).sentence,
            "treatment": next((one["reason"] for one in reversed(shared.ledger()) if one["what"] == "diagnosed"), ""),
        }

    def _observed(self) -> dict[str, Observed]:
        """Of requests without a tenant's name, by domain; copied between two steps."""
        if (thread := self._engine()) is None:
            return {}
        return thread.ask(
            lambda engine: {kind: one.copied() for (salt, kind), one in self.watch.observed.items() if not salt}
        )

    def close(self) -> None:
        """End the learner and the thread; what waits to be written is written."""
        self._ending.set()
        if self._thread is not current_thread():
            self._thread.join()

    def _pause(self) -> None:
        if self.learner is not None and not self.options.while_busy:
            self.learner.pause()

    def _note_idle(self) -> None:
        self._idle_since = monotonic()

    def _run(self) -> None:
        next_look = next_told = next_clean = 0.0
        try:
            while not self._ending.is_set() and self._engine() is not None:
                self._attempt(self._write)
                self._attempt(self._go_on)
                now = monotonic()
                if now >= next_look:
                    self._attempt(self._follow)
                    next_look = now + _LOOK
                if now >= next_told:
                    self._attempt(self._tell)
                    next_told = now + _TELL
                if now >= next_clean:
                    self._attempt(self._clean)
                    next_clean = now + _CLEAN
        finally:
            if self.learner is not None:
                self.learner.stop()
        while self.watch.ended_requests.qsize():
            self._attempt(self._write)
        self._attempt(self._tell)
        for spool in self._spools.values():
            spool.close()

    def _write(self) -> None:
        """Requests that ended: to disk, some at a time."""
        with suppress(Empty):
            served = self.watch.ended_requests.get(timeout=0.1)
            for _ in range(_TOGETHER):
                self._attempt(partial(self._keep, served))
                served = self.watch.ended_requests.get_nowait()
            self._attempt(partial(self._keep, served))

    def _keep(self, served: Served) -> None:
        folder = self._folders.setdefault(served.salt, self.room.name_of(served.salt))
        tenant = self.room.tenant(folder)
        if not (self.room.path / "room.json").exists():
            raise ConfigError(f"{self.room.path} is gone: requests are served, and nothing is learned of them")
        tenant.begin()
        if folder not in self._spools:
            kept, seconds = self.options.num_kept, _DAY * self.options.days
            self._spools[folder] = SpoolWriter(tenant.requests, num_kept=kept, seconds=seconds)
        self._spools[folder].put({"prompt_token_ids": served.prompt, "token_ids": served.answer})
        self._num_kept += 1

    def _go_on(self) -> None:
        """Start the learner once there is something to learn, and have it go on while nothing runs."""
        self.watch.is_frozen = self.room.is_frozen
        if self.learner is None or not self._num_kept or self.watch.is_frozen:
            return
        if self.options.while_busy or (not self.watch.is_busy and monotonic() - self._idle_since >= _REST):
            if said := self.learner.keep_alive():
                _log.warning("%s", said)
            self.learner.go_on()
        if self.watch.is_busy:  # a request that came in between
            self._pause()

    def _follow(self) -> None:
        """Adopt what the room says."""
        for salt in list(self.watch.salts):
            if salt not in self._folders and self.room.tenant(folder := self.room.name_of(salt)).born:
                self._folders[salt] = folder
        for salt, folder in list(self._folders.items()):
            tenant = self.room.tenant(folder)
            now, before = (tenant.born, tenant.version), self.serving.get(folder, ("", 0))
            if now == before or (thread := self._engine()) is None:
                continue
            if now[1] or before[1]:
                with torch_threads(1):
                    hand_over(thread, tenant.place(now[1]) if now[1] else self.room.pair.draft, salt)
                _log.info("%s: version %d of the draft serves in the place of %d", folder, now[1], before[1])
                thread.ask(lambda engine, salt=salt: self.watch.forget(salt))  # type: ignore[misc]
            self.serving[folder] = now

    def _clean(self) -> None:
        """Delete what is too old, of every tenant; one that is left with nothing goes."""
        seconds = _DAY * self.options.days
        for name in self.room.tenants():
            tenant = self.room.tenant(name)
            clean_spool(tenant.requests, num_kept=self.options.num_kept, seconds=seconds)
            is_old = (tenant.path / "born").stat().st_mtime < time() - seconds if tenant.born else False
            if name != SHARED and is_old and not spool_files(tenant.requests):
                tenant.reset()

    def _attempt(self, work: Callable[[], object]) -> None:
        """What fails is said once; the next time may do better."""
        try:
            work()
        except Exception as error:
            if (said := f"{type(error).__name__}: {error}") not in self._said and len(self._said) < _MOST_SAID:
                self._said.add(said)
                _log.warning("adaptation: %s", said)

    def _tell(self) -> None:
        """Leave what was observed for `outdraft adapt status`, and for the learner."""
        if self._engine() is None:
            return
        with new_file(self.room.path / "observed.json") as beside:
            said = {**self._look(), "examined": _joined(self._observed()).data()}
            beside.write_text(json.dumps(said) + "\n", encoding="utf-8")


def _joined(domains: Mapping[str, Observed]) -> Observed:
    return reduce(Observed.joined, domains.values(), Observed())


def _only_drafter(parts: Parts) -> tuple[RenewingDrafter, Path]:
    """The one that learns, and where its draft lies."""
    found = [
        (one, home) for one in inner(parts.drafter) if isinstance(one, RenewingDrafter) and (home := one.traits.home)
    ]
    if len(found) != 1:
        raise CapabilityError(
            f"adapt= is for one head or draft model whose network can be replaced, and here are {len(found)} (of "
            f"{', '.join(parts.held.methods)}): name one of a kind that learns (docs/adaptation.md), or leave adapt out"
        )
    only_adoption(parts.drafter)
    drafter, home = found[0]
    if not (home / RECORD).is_file():
        raise CapabilityError(
            f"adapt= needs the record of the draft's training, and {home} holds no {RECORD}: train it on "
            f"(outdraft train KIND --init {home}), name another draft, or leave adapt out"
        )
    return drafter, home


def _place(options: AdaptOptions, pair: Pair) -> Path:
    if options.room:
        return user_path(options.room)
    if not is_kept():
        raise ConfigError(
            "adapt= keeps requests and versions, and OUTDRAFT_CACHE=off keeps nothing: name a directory, "
            "adapt={'room': DIR}"
        )
    return user_cache("adapt", "-".join(pair.digests().values()))


def _told(options: AdaptOptions) -> dict[str, Any]:
    """What the learner reads."""
    names = ("seconds_an_hour", "first", "max_tenants", "learn", "gate")
    return {name: getattr(options, name) for name in names}


def _rates(whole: Examined) -> dict[str, Any]:
    return {"rounds": whole.rounds, "acceptance": _rounded(whole.acceptance)}


def _told_of(one: Bin) -> dict[str, Any]:
    return {"confidence": round(one.sure / one.count, 4), "accepted": round(one.right / one.count, 4), "of": one.count}


def _rounded(rates: list[float]) -> list[float]:
    return [round(one, 4) for one in rates]
