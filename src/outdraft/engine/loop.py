"""Requests over time: admit, step, retire. It knows the four parts only by their contracts.

Sequences join whenever there is room and leave when they end. A prompt is read alone, in fixed chunks, so that no
request's numbers depend on who else is there; then all prefilled sequences decode together in one ragged pass.
"""

import secrets
from collections import deque
from collections.abc import Callable
from itertools import count

from outdraft.core.errors import RequestError
from outdraft.core.events import StepEvent
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.decode.step import Parts, step
from outdraft.sampling.coins import draft_coins, verifier_coins


class Engine:
    """The one loop. Not thread-safe: `engine.callers` serialises the callers. `variant` names the target's rounding."""

    def __init__(
        self,
        parts: Parts,
        *,
        eos_token_ids: frozenset[int] = frozenset(),
        max_num_seqs: int = 64,
        variant: str = "",
    ) -> None:
        self.parts = parts
        self.variant = variant
        self.eos_token_ids = eos_token_ids
        self.max_num_seqs = max_num_seqs
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._ids = count()

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.waiting or self.running)

    def add(self, request: Request, find_stop: Callable[[int], bool] | None = None) -> Sequence:
        """Accept a request. `find_stop` is told each emitted token and says whether the text ends with it.

        Raises `RequestError` before any work is done: empty prompt, prompt too long, ids outside the vocabulary.
        """
        ids, params = request.prompt_token_ids, request.params
        target = self.parts.target
        if not ids:
            raise RequestError("the prompt is empty: give at least one token (a start token, if the model has one)")
        if len(ids) >= target.max_len:
            raise RequestError(
                f"the prompt has {len(ids)} tokens, the context holds {target.max_len} and at least one must be left "
                "for the answer: shorten the prompt"
            )
        if not 0 <= min(ids) <= max(ids) < target.vocab_size:
            bad = next(i for i in ids if not 0 <= i < target.vocab_size)
            raise RequestError(f"token id {bad} is outside the vocabulary of {target.vocab_size}")
        named = [("logit_bias", params.logit_bias), ("stop_token_ids", params.stop_token_ids)]
        for name, chosen in (*named, *(("references", text) for text in request.references)):
            for i in chosen:
                if not 0 <= i < target.vocab_size:
                    raise RequestError(f"{name} names token {i}, outside the vocabulary of {target.vocab_size}")
        wanted = request.num_speculative_tokens
        if wanted is not None and wanted < 0:
            raise RequestError(f"num_speculative_tokens={wanted} is out of range: it must be at least 0 (0 is plain)")
        seq = Sequence(
            id=next(self._ids),
            request=request,
            tokens=list(ids),
            prompt_len=len(ids),
            max_len=target.max_len,
            seed=secrets.randbits(63) if params.seed is None else params.seed,
            coupled=self.parts.verifier.couples(request),
            eos_token_ids=self.eos_token_ids,
            coins=verifier_coins,
            draft_coins=draft_coins,
            prompt_ids=frozenset(ids),
        )
        if find_stop is not None:
            seq.find_stop = find_stop
        self.waiting.append(seq)
        return seq

    def step(self) -> list[StepEvent]:
        """One pass: the oldest unread prompt's next chunk, or one round of every decoding sequence."""
        while self.waiting and len(self.running) < self.max_num_seqs and self.admits():
            self._admit(self.waiting.popleft())
        unread = next((seq for seq in self.running if not seq.prefilled), None)
        batch = [unread] if unread is not None else list(self.running)
        if not batch:
            return []
        events = step(batch, self.parts)
        for seq in batch:
            if seq.finish_reason is not None:
                self._retire(seq)
        return events

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

    def _admit(self, seq: Sequence) -> None:
        seq.variant = self.variant
        self.parts.target.begin(seq)
        self.parts.drafter.begin([seq])
        self.running.append(seq)

    def _retire(self, seq: Sequence) -> None:
        self.running.remove(seq)
        self.parts.drafter.end([seq])
        self.parts.policy.end([seq])
        self.parts.target.end(seq)
