"""What an engine does, as adaptation hears it: which requests may be learned from, and how their guesses fare.

    asked      the request's tenant and domain; the learner pauses
    observe    rounds of the drafter that learns, by tenant and domain
    ended      its ids go to a queue, which another thread writes to disk

A request that opted out is not looked at: nothing is counted of it, and nothing written. Neither is any while the room
is frozen, nor in a forked process.
"""

import os
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from queue import SimpleQueue

from outdraft.adapt.domains import Domains
from outdraft.adapt.observe import Observed
from outdraft.core.decisions import Decisions
from outdraft.core.drafter import Seen
from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence

_MOST_ANSWER = 2048  # ids of an answer that are kept
_MOST_SALTS = 4096
_MOST_WAITING = 1000  # requests that are not on disk yet; further ones are left out
_LEAST = 2  # ids of an answer, of which something can be learned
_WHOLE = ("stop", "length")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A request that ended, and may be learned from."""

    salt: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


class ServedWatch:
    """Hears one engine, in its thread. `window`: ids of a prompt that are kept, its last ones."""

    def __init__(
        self,
        *,
        opt_in: bool,
        window: int,
        max_tenants: int,
        tenants_a_key: int,
        busy: Callable[[], None],
        idle: Callable[[], None],
    ) -> None:
        self.ended_requests: SimpleQueue[Served] = SimpleQueue()
        self.observed: dict[tuple[str, str], Observed] = {}  # by salt and domain
        self.domains: dict[str, Domains] = {}
        self.num_left_out = 0  # requests of tenants beyond the most
        self._opt_in, self._window = opt_in, window
        self._max_tenants, self._tenants_a_key = max_tenants, tenants_a_key
        self._busy, self._idle = busy, idle
        self.is_frozen = False
        self.salts: dict[str, None] = {}  # that requests had, so that their versions are found
        self._process = os.getpid()
        self._running: set[int] = set()
        self._looked_at: dict[int, tuple[str, str]] = {}  # sequence -> salt, domain

    @property
    def is_busy(self) -> bool:
        """Whether a request runs, or waits."""
        return bool(self._running)

    def asked(self, seq: Sequence, now: float) -> None:
        if os.getpid() != self._process:
            return
        self._running.add(seq.id)
        self._busy()
        salt = seq.request.cache_salt or ""
        if len(self.salts) < _MOST_SALTS:
            self.salts[salt] = None
        if self.is_frozen or not self._may_learn(seq):
            return
        if salt not in self.domains and self._is_full(salt):
            self.num_left_out += 1
            return
        kind = self.domains.setdefault(salt, Domains()).of(seq.request.prompt_token_ids)
        self._looked_at[seq.id] = (salt, kind)

    def refused(self, seq: Sequence, now: float) -> None:
        """Too many wait: there is nothing of it."""

    def passed(self, decisions: Decisions, events: Seq[StepEvent], now: float, seconds: float) -> None:
        """What counts of a pass comes by `observe`."""

    def observe(self, seen: Seq[Seen]) -> None:
        """What the drafter that learns was shown."""
        for one in seen:
            if (whose := self._looked_at.get(one.seq.id)) is not None:
                self.observed.setdefault(whose, Observed()).add(one)

    def ended(self, seq: Sequence, now: float) -> None:
        self._running.discard(seq.id)
        if not self._running:
            self._idle()
        whose = self._looked_at.pop(seq.id, None)
        if whose is None or seq.finish_reason not in _WHOLE or seq.num_output < _LEAST:
            return
        if self.ended_requests.qsize() >= _MOST_WAITING:
            return
        prompt, answer = seq.request.prompt_token_ids[-self._window :], seq.output[:_MOST_ANSWER]
        self.ended_requests.put(Served(salt=whose[0], prompt=prompt, answer=tuple(answer)))

    def forget(self, salt: str) -> None:
        """Nothing is known of the guesses of this salt, as of another network's."""
        for whose in [one for one in self.observed if one[0] == salt]:
            del self.observed[whose]

    def _is_full(self, salt: str) -> bool:
        """Whether there is no room for another tenant, or for another of its key: KEY/SALT, as a server joins them."""
        key = salt.partition("/")[0]
        of_key = sum(one.partition("/")[0] == key for one in self.domains) if key else 0
        return bool(salt) and (of_key >= self._tenants_a_key or sum(map(bool, self.domains)) >= self._max_tenants)

    def _may_learn(self, seq: Sequence) -> bool:
        """Whether it said so, and whether its answer is the model's own behind its prompt."""
        request = seq.request
        if not (not self._opt_in if request.adapt is None else request.adapt):
            return False
        shaped = request.constraint is not None or request.params.guides or request.negative_prompt_token_ids
        return not shaped and request.prompt_embeds is None and request.prompt_positions is None
