"""The instruments of `GET /metrics`: vLLM's names with the prefix `outdraft:`, and its meanings, so that its dashboards
and gateways need one change. https://docs.vllm.ai/en/latest/usage/metrics.html

Seconds and tokens; the label of all is `model_name`. What one token took is given twice, because a round of speculation
writes several at once: `inter_token_latency_seconds` is the gap between two rounds, which is what vLLM counts, and
`inter_token_latency_per_token_seconds` has an entry for each token, 0 for all of a round but the first.

    asked_at ---- queue ---- first pass ---- prefill ---- first token ---- decode ---- last token
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from outdraft.core.cache import PAGE
from outdraft.core.decisions import Decisions
from outdraft.core.events import StepEvent, step_times
from outdraft.core.sequence import Sequence
from outdraft.engine.adapting.adapting import Adapting
from outdraft.engine.loop import Engine
from outdraft.engine.plain_pass import plain_pass
from outdraft.options.errors import CapabilityError

_PREFIX = "outdraft:"
_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10, 40, 160)
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 160, 640, 2560)
_LONG = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 20, 30, 60, 120, 240, 480, 960, 1920, 7680)
_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_REASONS = ("stop", "length", "timeout", "abort", "error")
_ENDED = {"cancelled": "abort", None: "error"}  # vLLM's words for the engine's
_ADAPT_NUMBERS = {
    "version": "version of the draft that serves; 0: the one of the beginning",
    "requests_kept": "requests written to disk since the start, of all tenants",
    "rounds": "rounds observed of the version that serves",
    "frozen": "1 while nothing is learned",
}
_ADAPT_RATES = {
    "acceptance": "guesses accepted of those reached, by position from 0; a moving average",
    "marginal_acceptance": "mean of p(guess) over the largest p, by position from 0; a moving average",
    "hazards": "guesses rejected of those reached, by position from 0, of all rounds observed of this version",
    "first_rejection": "rounds whose first rejection fell on this position, from 0, of the same",
}


class Instruments:
    """One registry of its own for each server. `model_name`: what answers call the model."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._name = model_name
        gauge, counter, histogram = self._gauge, self._counter, self._histogram
        self.running = gauge("num_requests_running", "texts that are being read or written")
        self.waiting = gauge("num_requests_waiting", "texts that wait for a seat or for memory")
        self.cache_usage = gauge("kv_cache_usage_perc", "share of the key/value cache in use, 0 to 1")
        self.prompt_tokens = counter("prompt_tokens", "prompt tokens of texts that have begun")
        self.generation_tokens = counter("generation_tokens", "tokens written")
        self.prefix_queries = counter("prefix_cache_queries", "prompt tokens looked for among earlier texts")
        self.prefix_hits = counter("prefix_cache_hits", "prompt tokens taken over from earlier texts")
        self.preemptions = counter("num_preemptions", "times that a text gave back its memory")
        success = self._counters("request_success", "texts that are over", "finished_reason")
        self.success = {reason: success.labels(model_name, reason) for reason in _REASONS}
        self.num_drafts = counter("spec_decode_num_drafts", "rounds with a draft")
        self.draft_tokens = counter("spec_decode_num_draft_tokens", "tokens drafted")
        self.accepted_tokens = counter("spec_decode_num_accepted_tokens", "drafted tokens accepted")
        self._per_position = self._counters(
            "spec_decode_num_accepted_tokens_per_pos", "drafted tokens accepted, by position from 0", "position"
        )
        self._drafts_by = self._counters(
            "spec_decode_num_drafts_by_method", "rounds with a draft, by who drafted", "method"
        )
        self._accepted_by = self._counters(
            "spec_decode_num_accepted_tokens_by_method", "drafted tokens accepted, by who drafted them", "method"
        )
        self.compared = counter("spec_decode_compared_seconds", "seconds of passes compared with plain decoding")
        self.plain = counter("spec_decode_plain_seconds", "seconds of plain decoding in their place, estimated")
        self.speedup = gauge("estimated_speedup", "the latter over the former; nan before any was compared")
        self.speedup.set(float("nan"))
        self.first_token = histogram("time_to_first_token_seconds", "from the call to the first token", _FIRST)
        self.gap = histogram("inter_token_latency_seconds", "gap between two rounds that wrote tokens", _SHORT)
        self.token_gap = histogram(
            "inter_token_latency_per_token_seconds", "the same for each token; 0 for those that came together", _SHORT
        )
        self.per_output = histogram(
            "request_time_per_output_token_seconds", "mean of a text's tokens after its first", _SHORT
        )
        self.whole = histogram("e2e_request_latency_seconds", "from the call to the end", _LONG)
        self.queued = histogram("request_queue_time_seconds", "from the call to the first pass", _LONG)
        self.prefill = histogram("request_prefill_time_seconds", "from the first pass to the first token", _LONG)
        self.decode = histogram("request_decode_time_seconds", "from the first token to the last", _LONG)
        self.inference = histogram("request_inference_time_seconds", "from the first pass to the last token", _LONG)
        self.prompt_sizes = histogram("request_prompt_tokens", "prompt tokens of a text", _COUNTS)
        self.written_sizes = histogram("request_generation_tokens", "tokens written of a text", _COUNTS)
        self.asked_sizes = histogram("request_params_max_tokens", "the most tokens a text might have", _COUNTS)
        self.pass_tokens = histogram(
            "iteration_tokens_total", "prompt tokens read and tokens written, of one pass", _COUNTS
        )

    def drafted(self, method: str, num_accepted: int) -> None:
        self._drafts_by.labels(self._name, method).inc()
        self._accepted_by.labels(self._name, method).inc(num_accepted)
        for position in range(num_accepted):
            self._per_position.labels(self._name, str(position)).inc()

    def _gauge(self, name: str, told: str) -> Gauge:
        return Gauge(f"{_PREFIX}{name}", told, ("model_name",), registry=self.registry).labels(self._name)

    def _counter(self, name: str, told: str) -> Counter:
        return Counter(f"{_PREFIX}{name}", told, ("model_name",), registry=self.registry).labels(self._name)

    def _counters(self, name: str, told: str, label: str) -> Counter:
        """One for each value of `label`."""
        return Counter(f"{_PREFIX}{name}", told, ("model_name", label), registry=self.registry)

    def _histogram(self, name: str, told: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(f"{_PREFIX}{name}", told, ("model_name",), registry=self.registry, buckets=buckets)
        return made.labels(self._name)


class AdaptInstruments:
    """Of a draft that learns, set when they are asked for. `name`: what answers call the model.

    Only of requests without a tenant's name: how a tenant's draft fares is not for others to see.
    """

    def __init__(self, registry: CollectorRegistry, name: str, adapting: Adapting) -> None:
        self._name, self._adapting = name, adapting

        def gauges(of_each: Mapping[str, str], *labels: str) -> dict[str, Gauge]:
            named = {one: f"{_PREFIX}adapt_{one}" for one in of_each}
            return {one: Gauge(named[one], of_each[one], labels, registry=registry) for one in of_each}

        self._numbers = gauges(_ADAPT_NUMBERS, "model_name")
        self._rates = gauges(_ADAPT_RATES, "model_name", "position")

    def update(self) -> None:
        status = self._adapting.status()
        for name, gauge in self._numbers.items():
            gauge.labels(self._name).set(float(status[name]))
        for name, gauge in self._rates.items():
            for position, rate in enumerate(status[name]):
                gauge.labels(self._name, str(position)).set(rate)


@dataclass(slots=True, kw_only=True)
class _Text:
    """What is known of a text that is not over. Seconds by the engine's clock."""

    seq: Sequence
    asked: float
    began: float | None = None  # its first pass
    first: float | None = None  # its first token
    last: float = 0.0
    num_written: int = 0
    num_preempted: int = 0


class EngineWatch:
    """Hears the engine, in its thread, and moves the instruments; texts asked for before it listened are left out."""

    def __init__(self, instruments: Instruments, engine: Engine) -> None:
        self._to, self._engine = instruments, engine
        self._texts: dict[int, _Text] = {}
        self._seconds = self._plain = 0.0  # of passes compared with plain decoding, and estimated of it

    def asked(self, seq: Sequence, now: float) -> None:
        self._texts[seq.id] = _Text(seq=seq, asked=now if seq.asked_at is None else seq.asked_at)
        self._to.prompt_sizes.observe(seq.prompt_len)
        self._to.asked_sizes.observe(seq.room)
        self._tell_load()

    def refused(self, seq: Sequence, now: float) -> None:
        """vLLM has no instrument for it, and never refuses: it is no success, and it waited for nothing."""

    def passed(self, decisions: Decisions, events: Seq[StepEvent], now: float, seconds: float) -> None:
        """A pass: what it read, wrote and drafted. A slice's pass counts when it is over, but began with the first."""
        for one in decisions.each:
            if (text := self._texts.get(one.seq_id)) is not None and text.began is None:
                text.began = now - seconds
                self._to.queued.observe(max(0.0, text.began - text.asked))
                self._to.prefix_queries.inc(text.seq.prompt_len)
                self._to.prefix_hits.inc(text.seq.num_taken_over)
        if not events:
            return
        size = 0
        for event in events:
            size += event.num_certain + len(event.tokens)
            if (text := self._texts.get(event.seq_id)) is None:
                continue
            self._count_preemptions(text)
            if event.tokens:
                size += text.first is None  # the prompt's last token is read where the first one is written
                self._write(text, event, now)
            if event.num_draft_tokens:
                self._count_draft(event)
        self._to.pass_tokens.observe(size)
        self._compare(events)
        self._tell_load()
        self._tell_cache()

    def ended(self, seq: Sequence, now: float) -> None:
        """It is over, in whatever way; a caller who leaves late may end it once more."""
        text = self._texts.pop(seq.id, None)
        if text is not None:
            self._count_preemptions(text)
            reason = _ENDED.get(seq.finish_reason, seq.finish_reason or "error")
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

    def _count_preemptions(self, text: _Text) -> None:
        self._to.preemptions.inc(text.seq.num_preempted - text.num_preempted)
        text.num_preempted = text.seq.num_preempted

    def _write(self, text: _Text, event: StepEvent, now: float) -> None:
        self._to.generation_tokens.inc(len(event.tokens))
        if text.first is None:
            text.first = now
            self._to.prompt_tokens.inc(text.seq.prompt_len)
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
        self._to.drafted(event.drafted_by, event.num_accepted)

    def _compare(self, events: Seq[StepEvent]) -> None:
        """What plain decoding would have taken for the tokens of this pass, by what its passes were measured to take.

        A pass that read a prompt is left out, and so is all before such a pass was measured.
        """
        count, tokens = len(events), sum(len(event.tokens) for event in events)
        if any(event.num_certain for event in events) or (plain := plain_pass(self._engine, count)) is None:
            return
        times = step_times(events)
        seconds = times.draft + times.target + times.rest
        self._to.compared.inc(seconds)
        self._to.plain.inc(plain * tokens / count)
        self._seconds, self._plain = self._seconds + seconds, self._plain + plain * tokens / count
        self._to.speedup.set(self._plain / self._seconds)

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
