"""Hears the engine, in its thread, and moves the instruments.

asked_at ---- queue ---- first pass ---- prefill ---- first token ---- decode ---- last token
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.cache import PAGE
from outdraft.core.events import StepEvent
from outdraft.core.sequence import Sequence
from outdraft.engine.loop import Engine
from outdraft.options.errors import CapabilityError
from outdraft.server.metrics.instruments import Instruments

_REASONS = {"cancelled": "abort", None: "error"}  # vLLM's words for the engine's


@dataclass(slots=True, kw_only=True)
class _Text:
    """What is known of a text that is not over. Seconds by the engine's clock."""

    asked: float
    began: float | None = None  # its first pass
    first: float | None = None  # its first token
    last: float = 0.0
    num_written: int = 0
    num_preempted: int = 0


class EngineWatch:
    """Texts that were asked for before it listened are left out."""

    def __init__(self, instruments: Instruments, engine: Engine) -> None:
        self._to, self._engine = instruments, engine
        self._texts: dict[int, _Text] = {}

    def asked(self, seq: Sequence, now: float) -> None:
        """A request has been queued."""
        self._texts[seq.id] = _Text(asked=now if seq.asked_at is None else seq.asked_at)
        self._to.prompt_sizes.observe(seq.prompt_len)
        self._to.asked_sizes.observe(seq.room)
        self._tell_load()

    def refused(self, seq: Sequence, now: float) -> None:
        """vLLM has no instrument for it, and never refuses: it is no success, and it waited for nothing."""

    def passed(self, seqs: Seq[Sequence], events: Seq[StepEvent], now: float, seconds: float) -> None:
        """A pass: what it read, wrote and drafted."""
        if not events:  # a slice: its pass counts when it is over, but began with the first
            for text in (self._texts.get(seq.id) for seq in seqs):
                if text is not None and text.began is None:
                    self._begin(text, seqs[0], now - seconds)
            return
        own = {event.seq_id: event for event in events}
        self._to.pass_tokens.observe(sum(event.num_certain + len(event.tokens) for event in events))
        for seq in seqs:
            text, event = self._texts.get(seq.id), own.get(seq.id)
            if text is None or event is None:
                continue
            if text.began is None:
                self._begin(text, seq, now - seconds)
            self._count_preemptions(text, seq)
            if event.tokens:
                self._write(text, seq, event, now)
            if event.num_draft_tokens:
                self._count_draft(event)
        self._tell_load()
        self._tell_cache()

    def ended(self, seq: Sequence, now: float) -> None:
        """It is over, in whatever way; a caller who leaves late may end it once more."""
        text = self._texts.pop(seq.id, None)
        if text is not None:
            self._count_preemptions(text, seq)
            reason = _REASONS.get(seq.finish_reason, seq.finish_reason or "error")
            self._to.success.get(reason, self._to.success["error"]).inc()
            self._to.whole.observe(now - text.asked)
            self._to.written_sizes.observe(text.num_written)
            if text.began is not None and text.first is not None:
                self._to.decode.observe(text.last - text.first)
                self._to.inference.observe(text.last - text.began)
                if text.num_written > 1:
                    self._to.per_output.observe((text.last - text.first) / (text.num_written - 1))
        self._tell_load()
        self._tell_cache()

    def _count_preemptions(self, text: _Text, seq: Sequence) -> None:
        self._to.preemptions.inc(seq.num_preempted - text.num_preempted)
        text.num_preempted = seq.num_preempted

    def _begin(self, text: _Text, seq: Sequence, began: float) -> None:
        text.began = began
        self._to.queued.observe(max(0.0, began - text.asked))
        self._to.prefix_queries.inc(seq.prompt_len)
        self._to.prefix_hits.inc(seq.num_taken_over)

    def _write(self, text: _Text, seq: Sequence, event: StepEvent, now: float) -> None:
        self._to.generation_tokens.inc(len(event.tokens))
        if text.first is None:
            text.first = now
            self._to.prompt_tokens.inc(seq.prompt_len)
            self._to.first_token.observe(now - text.asked)
            self._to.prefill.observe(now - (text.began or now))
        else:
            self._to.gap.observe(now - text.last)
            self._to.token_gap.observe(now - text.last)
        for _ in event.tokens[1:]:
            self._to.token_gap.observe(0.0)
        text.last, text.num_written = now, text.num_written + len(event.tokens)

    def _count_draft(self, event: StepEvent) -> None:
        self._to.num_drafts.inc()
        self._to.draft_tokens.inc(event.num_draft_tokens)
        self._to.accepted_tokens.inc(event.num_accepted)
        for position in range(event.num_accepted):
            self._to.accepted_at(position)

    def _tell_load(self) -> None:
        self._to.running.set(len(self._engine.running))
        self._to.waiting.set(len(self._engine.waiting))

    def _tell_cache(self) -> None:
        self._to.cache_usage.set(_used(self._engine))


def _used(engine: Engine) -> float:
    """The share of the cache that running texts have; without a pool, of what all seats could hold."""
    try:
        room, longest = engine.parts.room, engine.parts.target.max_len
    except CapabilityError:  # no weights are held, so there is no cache either
        return 0.0
    if room.capacity is not None:
        return 1 - room.free * PAGE / room.capacity
    return sum(len(seq.tokens) for seq in engine.running) / (engine.scheduler.settings.max_num_seqs * longest)
