"""The engine's loop: admit requests, run steps, retire sequences. It uses the four parts only by their contracts.

Sequences join whenever there is room and leave when they end. A prompt is read alone, in fixed chunks; then all
prefilled sequences decode together in one ragged pass. Where rows are exact, or guarded, no greedy or seeded text
depends on who else is there.
"""

import logging
import secrets
from collections import deque
from collections.abc import Callable, Set
from dataclasses import replace
from itertools import count
from math import inf

from outdraft.core.errors import CapabilityError, RequestError
from outdraft.core.events import StepEvent
from outdraft.core.params import SamplingParams
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.shown import shown
from outdraft.decode.apart import fail, step_apart
from outdraft.decode.shield import ShieldedDrafter, ShieldedPolicy
from outdraft.decode.step import Parts, step
from outdraft.engine.constraints import make_constraint
from outdraft.sampling.coins import draft_coins, verifier_coins

_log = logging.getLogger(__name__)


class Engine:
    """The one loop. One thread owns it (`engine/thread.py`); only `prepare` may be called from any thread.

    `variant` names the target's rounding. `isolates`: what raises ends the request that it belongs to, whose last event
    has the error (`decode/apart.py`); else it is raised, which is what a test of the parts wants.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        eos_token_ids: frozenset[int] = frozenset(),
        max_num_seqs: int = 64,
        variant: str = "",
        isolates: bool = False,
    ) -> None:
        self.isolates = isolates
        self.parts = parts
        self.variant = variant
        self.eos_token_ids = eos_token_ids
        self.max_num_seqs = max_num_seqs
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._ids = count()
        self._verifier = parts.verifier
        self._vocab_size, self._max_len = parts.target.vocab_size, parts.target.max_len

    @property
    def parts(self) -> Parts:
        """What a step is made of, as it was given. Raises `CapabilityError` while none are held."""
        if self._parts is None:
            raise CapabilityError(
                "no weights are held, because the last change of weights failed: the next request tries to load them"
            )
        return self._parts

    @parts.setter
    def parts(self, parts: Parts) -> None:
        self._parts: Parts | None = parts
        self._used = parts
        if self.isolates:
            self._used = replace(parts, drafter=ShieldedDrafter(parts.drafter), policy=ShieldedPolicy(parts.policy))

    def let_go(self) -> None:
        """Hold no parts, until others are given."""
        self._parts = None
        del self._used

    @property
    def lossless(self) -> bool:
        """Whether the rule keeps the target's distribution."""
        return self._verifier.lossless

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.waiting or self.running)

    def add(self, request: Request, find_stop: Callable[[int], bool] | None = None) -> Sequence:
        """`prepare` a request and `enqueue` it."""
        seq = self.prepare(request, find_stop)
        self.enqueue(seq)
        return seq

    def prepare(self, request: Request, find_stop: Callable[[int], bool] | None = None) -> Sequence:
        """Check a request; nothing is queued. `find_stop` is told each emitted token: does the text end with it?

        Raises `RequestError` before any work is done: empty prompt, prompt too long, ids outside the vocabulary.
        """
        ids, params = request.prompt_token_ids, request.params
        if not ids:
            raise RequestError("the prompt is empty: give at least one token (a start token, if the model has one)")
        if len(ids) >= self._max_len:
            raise RequestError(
                f"the prompt has {len(ids)} tokens, the context holds {self._max_len} and at least one must be left "
                "for the answer: shorten the prompt"
            )
        if not 0 <= min(ids) <= max(ids) < self._vocab_size:
            bad = next(i for i in ids if not 0 <= i < self._vocab_size)
            raise RequestError(f"token id {shown(bad)} is outside the vocabulary of {self._vocab_size}")
        given = request.prompt_positions
        if given is not None and not (len(given) == len(ids) and 0 <= min(given) <= given[-1] == max(given)):
            raise RequestError(
                f"prompt_positions={shown(given)} must be {len(ids)} positions, one for each token of the prompt, "
                "from 0 on, the last one the largest"
            )
        shift = 0 if given is None else max(0, given[-1] + 1 - len(ids))  # the context ends where positions do
        if len(ids) + shift >= self._max_len:
            raise RequestError(
                f"prompt_positions end at {given[-1] if given else 0}, the context holds {self._max_len}"
            )
        named = [("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)]
        for name, chosen in (*named, *(("references", text) for text in request.references)):
            for i in chosen:
                if not 0 <= i < self._vocab_size:
                    raise RequestError(f"{name} names token {shown(i)}, outside the vocabulary of {self._vocab_size}")
        _require_a_token(params, self.eos_token_ids, self._vocab_size)
        constraint = make_constraint(request, self._vocab_size)
        seq = Sequence(
            id=next(self._ids),
            request=request,
            tokens=list(ids),
            prompt_len=len(ids),
            max_len=self._max_len - shift,
            seed=secrets.randbits(63) if params.seed is None else params.seed,
            coupled=self._verifier.couples(request),
            eos_token_ids=self.eos_token_ids,
            coins=verifier_coins,
            draft_coins=draft_coins,
            prompt_ids=frozenset(ids),
            constraint=constraint,
        )
        if find_stop is not None:
            seq.find_stop = find_stop
        return seq

    def enqueue(self, seq: Sequence) -> None:
        """It joins when there is room."""
        self.waiting.append(seq)

    def step(self) -> list[StepEvent]:
        """One pass: the oldest unread prompt's next chunk, or one round of every decoding sequence."""
        events = self._admit_waiting()
        unread = next((seq for seq in self.running if not seq.prefilled), None)
        batch = [unread] if unread is not None else list(self.running)
        if batch:
            events += step_apart(batch, self._used) if self.isolates else step(batch, self._used)
        for seq in batch:
            if seq.finish_reason is not None:
                self._retire(seq)
        return events

    def abandon(self) -> None:
        """A step broke in a way that nobody foresaw: drop every request, whatever else breaks on the way."""
        self.waiting.clear()
        for seq in list(self.running):
            try:
                self._retire(seq)
            except BaseException as error:
                _log.error("a request could not be cleared away", exc_info=error)

    def admits(self) -> bool:
        """Whether the next request may join now; `ElasticEngine` may want to change its weights first."""
        return True

    def cancel(self, seq: Sequence) -> None:
        """Drop a request wherever it is; it keeps what it has written."""
        seq.finish_reason = seq.finish_reason or "cancelled"
        if seq in self.waiting:
            self.waiting.remove(seq)
        elif seq in self.running:
            self._retire(seq)

    def _admit_waiting(self) -> list[StepEvent]:
        """Let join who may; an event for each that could not."""
        events = []
        while self.waiting and len(self.running) < self.max_num_seqs:
            try:
                if not self.admits():
                    break
                self._admit(self.waiting[0])
            except Exception as error:
                if not self.isolates:
                    raise
                events.append(fail(self.waiting[0], error))
            self.waiting.popleft()
        return events

    def _admit(self, seq: Sequence) -> None:
        seq.variant = self.variant
        seq.num_cached = seq.num_taken_over = self._used.target.begin(seq)
        self._used.drafter.begin([seq])
        self.running.append(seq)

    def _retire(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self._used.drafter.end([seq])
        self._used.policy.end([seq])
        try:
            self._used.target.end(seq)
        except Exception as error:
            if not self.isolates:
                raise
            _log.error("the target could not forget a sequence", exc_info=error)


def _require_a_token(params: SamplingParams, ends: Set[int], vocab_size: int) -> None:
    """Raise `RequestError` where every token is forbidden."""
    forbidden = {token for token, bias in params.logit_bias.items() if bias == -inf}
    if params.min_tokens:
        forbidden |= {*params.stop_token_ids, *ends}
    if len(forbidden) >= vocab_size:
        ends_too = " and min_tokens" if params.min_tokens else ""
        raise RequestError(f"logit_bias{ends_too} forbids all {vocab_size} tokens: leave one that may be written")
