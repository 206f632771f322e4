"""A draft that keeps learning beside an engine: requests go out to the room's disk, versions come in from it.

    engine's thread   ServedWatch ----queue----+          asks nothing of a disk, and waits for none
    this thread       room/requests <----------+  a second later: is `current` another?  -> adopt, between two steps
    learner           room/requests -> learns, judges -> room/versions, room/current        a process of its own

Whether a version is good is the learner's to say (`training/live_learner.py`); here `current` is followed, forwards and
back. Nothing here can stop a request: what fails is logged once, and the draft that serves goes on.
"""

import json
import logging
from contextlib import suppress
from pathlib import Path
from queue import Empty
from threading import Event, Thread
from time import monotonic
from typing import Any
from weakref import ref

from outdraft.adapt.acceptance_record import AcceptanceRecord
from outdraft.adapt.diagnose import diagnose
from outdraft.adapt.domains import Domains
from outdraft.adapt.examined import Examined
from outdraft.adapt.observe import Observed
from outdraft.adapt.options import AdaptOptions
from outdraft.adapt.room import SHARED, Pair, Room
from outdraft.adapt.spool import SpoolWriter
from outdraft.core.drafter import Drafter, inner
from outdraft.drafters.shared.renewing import RenewingDrafter
from outdraft.engine.adapting.learner_process import LearnerProcess
from outdraft.engine.adapting.served import Served, ServedWatch
from outdraft.engine.callers.adoption import hand_over, only_adoption
from outdraft.engine.callers.thread import EngineThread
from outdraft.kernels.threads import torch_threads
from outdraft.options.errors import CapabilityError, ConfigError, OutdraftError
from outdraft.options.new_file import new_file
from outdraft.options.paths import user_path
from outdraft.weights.user_cache import is_kept, user_cache

_REST = 0.3  # seconds without a request after which the learner goes on
_LOOK = 1.0  # between two looks at the room
_TELL = 10.0  # between two writings of what was observed
_log = logging.getLogger("outdraft.adapt")


class Adapting:
    """Of one engine. Raises `CapabilityError` where not exactly one drafter has a network that can be replaced."""

    def __init__(self, thread: EngineThread, target: Path, options: AdaptOptions) -> None:
        self.options = options
        self._engine = ref(thread)  # it ends with its `LLM`, and so does this
        self._drafter = _only_drafter(thread.engine.parts.drafter)
        home = self._drafter.traits.home
        assert home is not None, "a network that can be replaced came from a directory"
        pair = Pair(target=target, draft=home)
        self.room = Room.open(_place(options, pair), pair, _told(options))
        self.learner = LearnerProcess(self.room.path, options.threads) if options.learner else None
        self.watch = ServedWatch(
            opt_in=options.opt_in,
            window=options.learning.window,
            max_tenants=options.max_tenants,
            busy=self._pause,
            idle=self._note_idle,
        )
        self.serving: dict[str, int] = {}  # folder of a tenant -> version of the room
        self._spools: dict[str, SpoolWriter] = {}
        self._salts: dict[str, str] = {SHARED: ""}  # folder of a tenant -> salt
        self._idle_since, self._num_kept, self._said = monotonic(), 0, set[str]()
        self._recall_domains()
        self._ending = Event()
        thread.ask(lambda engine: engine.watch.add(self.watch))
        self._drafter.heard = self.watch.observe
        self._follow(thread)  # what was learned before serves from the first request on
        self._thread = Thread(target=self._run, name="outdraft-adapt", daemon=True)
        self._thread.start()

    def status(self) -> dict[str, Any]:
        """What is known now, as plain data: versions, requests, the learner, guesses by domain, what is wrong."""
        domains = self._observed()
        whole = Observed()
        for one in domains.values():
            whole = whole.merge(one)
        learner = "none" if self.learner is None else "paused" if self.learner.is_paused else "running"
        return {
            "room": str(self.room.path),
            "version": self.serving.get(SHARED, 0),
            "tenants": len(self.watch.domains),
            "requests_kept": self._num_kept,
            "learner": learner if self.learner is None or self.learner.is_alive else "not running",
            "frozen": self.room.is_frozen,
            "rounds": whole.whole.rounds,
            "marginal_acceptance": _rounded(whole.recent.nearness),
            "acceptance": _rounded(whole.recent.acceptance),
            "first_rejection": whole.whole.first_rejection,
            "domains": {kind: _rates(one.whole) for kind, one in domains.items()},
            "diagnosis": diagnose(whole, self._record()).sentence,
        }

    def _observed(self) -> dict[str, Observed]:
        """Of requests without a tenant's name, by domain; copied between two steps."""
        if (thread := self._engine()) is None:
            return {}
        shared = {kind: one for (salt, kind), one in list(self.watch.observed.items()) if not salt}
        return thread.ask(lambda engine: {kind: Observed.of(one.data()) for kind, one in shared.items()})

    def close(self) -> None:
        """End the learner and the thread; what waits to be written is written."""
        self._ending.set()
        self._thread.join()

    def _pause(self) -> None:
        if self.learner is not None and not self.options.while_busy:
            self.learner.pause()

    def _note_idle(self) -> None:
        self._idle_since = monotonic()

    def _run(self) -> None:
        looked = told = monotonic()
        while not self._ending.is_set() and self._engine() is not None:
            self._write()
            self._go_on()
            if monotonic() - looked >= _LOOK:
                self._attempt(lambda: self._follow(self._engine()))
                looked = monotonic()
            if monotonic() - told >= _TELL:
                self._attempt(self._tell)
                told = monotonic()
        if self.learner is not None:
            self.learner.stop()
        self._write(wait=False)
        self._attempt(self._tell)
        for spool in self._spools.values():
            spool.close()

    def _write(self, *, wait: bool = True) -> None:
        """Requests that ended: to disk."""
        try:
            while True:
                served = self.watch.ended_requests.get(timeout=0.1 if wait else 0.0)
                self._attempt(lambda served=served: self._keep(served))  # type: ignore[misc]
        except Empty:
            return

    def _keep(self, served: Served) -> None:
        folder = self.room.name_of(served.salt)
        if self.room.is_frozen:
            return
        self._salts[folder] = served.salt
        tenant = self.room.tenant(folder)
        spool = self._spools.get(folder)
        if spool is None or not tenant.requests.is_dir():  # or the tenant was reset
            kept, seconds = self.options.num_kept, 86400 * self.options.days
            spool = self._spools[folder] = SpoolWriter(tenant.requests, num_kept=kept, seconds=seconds)
        spool.put({"prompt_token_ids": served.prompt, "token_ids": served.answer, "domain": served.domain})
        self._num_kept += 1

    def _go_on(self) -> None:
        """Start the learner once there is something to learn, and have it go on while nothing runs."""
        if self.learner is None or not self._num_kept or self.room.is_frozen:
            return
        idle = not self.watch.is_busy and monotonic() - self._idle_since >= _REST
        if idle or self.options.while_busy:
            if said := self.learner.keep_alive():
                _log.warning("%s", said)
            self.learner.go_on()

    def _follow(self, thread: EngineThread | None) -> None:
        """Adopt what the room says."""
        if thread is None:
            return
        for folder, salt in list(self._salts.items()):
            tenant = self.room.tenant(folder)
            version = tenant.version
            if version == self.serving.get(folder, 0):
                continue
            place = tenant.place(version) if version else self.room.pair.draft
            with torch_threads(1):
                hand_over(thread, place, salt or None)
            before, self.serving[folder] = self.serving.get(folder, 0), version
            _log.info("%s: version %d of the draft serves in the place of %d", folder, version, before)
            self._forget_rounds(salt)

    def _forget_rounds(self, salt: str) -> None:
        """Rounds of other weights say nothing of these."""
        for whose in [one for one in self.watch.observed if one[0] == salt]:
            self.watch.observed.pop(whose, None)

    def _attempt(self, work: Any) -> None:
        """What fails is said once; the next time may do better."""
        try:
            work()
        except (OSError, OutdraftError, ValueError) as error:
            if (said := str(error)) not in self._said and len(self._said) < 100:
                self._said.add(said)
                _log.warning("adaptation: %s", said)

    def _tell(self) -> None:
        """Leave what was observed for `outdraft adapt status`, and the domains for the next engine."""
        with new_file(self.room.path / "observed.json") as beside:
            beside.write_text(json.dumps(self.status()) + "\n", encoding="utf-8")
        if "" in self.watch.domains:
            with new_file(self.room.path / "domains.json") as beside:
                beside.write_text(json.dumps(self.watch.domains[""].kept()) + "\n", encoding="utf-8")

    def _recall_domains(self) -> None:
        domains = Domains()
        with suppress(OSError, ValueError, KeyError, TypeError):
            domains.recall(json.loads((self.room.path / "domains.json").read_text(encoding="utf-8")))
            self.watch.domains[""] = domains

    def _record(self) -> AcceptanceRecord | None:
        """What the draft promised when it was trained."""
        place = self.room.tenant(SHARED).draft or self.room.pair.draft
        try:
            promise = json.loads((place / "training.json").read_text(encoding="utf-8"))["promises"][-1]
            return AcceptanceRecord(acceptance=tuple(map(float, promise["conditional"])))
        except (OSError, ValueError, KeyError, TypeError, IndexError, ConfigError):
            return None


def _only_drafter(drafter: Drafter) -> RenewingDrafter:
    found = [one for one in inner(drafter) if isinstance(one, RenewingDrafter)]
    if len(found) != 1:
        raise CapabilityError(
            f"adapt= is for one head or draft model that learns, and here are {len(found)}: name a trained head or a "
            "draft model (`outdraft methods`), or leave adapt out"
        )
    only_adoption(drafter)
    return found[0]


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
    names = ("seconds_an_hour", "first", "learn", "gate")
    return {name: getattr(options, name) for name in names}


def _rates(whole: Examined) -> dict[str, Any]:
    return {"rounds": whole.rounds, "acceptance": _rounded(whole.acceptance)}


def _rounded(rates: list[float]) -> list[float]:
    return [round(one, 4) for one in rates]
