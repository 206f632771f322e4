"""The instruments of `GET /metrics`: vLLM's names with the prefix `outdraft:`, and its meanings, so that its dashboards
and gateways need one change. https://docs.vllm.ai/en/latest/usage/metrics.html

Seconds and tokens; the label of all is `model_name`. What one token took is given twice, because a round of speculation
writes several at once: `inter_token_latency_seconds` is the gap between two rounds, which is what vLLM counts, and
`inter_token_latency_per_token_seconds` has an entry for each token, 0 for all of a round but the first.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PREFIX = "outdraft:"
_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10, 40, 160)
_FIRST = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 160, 640, 2560)
_LONG = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 20, 30, 60, 120, 240, 480, 960, 1920, 7680)
_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
REASONS = ("stop", "length", "timeout", "abort", "error")


class Instruments:
    """One registry of its own for each server. `model_name`: what answers call the model."""

    def __init__(self, model_name: str) -> None:
        self.registry = CollectorRegistry()
        self._name = model_name
        self.running = self._gauge("num_requests_running", "texts that are being read or written")
        self.waiting = self._gauge("num_requests_waiting", "texts that wait for a seat or for memory")
        self.cache_usage = self._gauge("kv_cache_usage_perc", "share of the key/value cache in use, 0 to 1")
        self.prompt_tokens = self._counter("prompt_tokens", "prompt tokens of texts that have begun")
        self.generation_tokens = self._counter("generation_tokens", "tokens written")
        self.prefix_queries = self._counter("prefix_cache_queries", "prompt tokens looked for among earlier texts")
        self.prefix_hits = self._counter("prefix_cache_hits", "prompt tokens taken over from earlier texts")
        self.preemptions = self._counter("num_preemptions", "times that a text gave back its memory")
        self._success = Counter(
            f"{_PREFIX}request_success", "texts that are over", ("model_name", "finished_reason"),
            registry=self.registry,
        )  # fmt: skip
        self.success = {reason: self._success.labels(model_name, reason) for reason in REASONS}
        self.num_drafts = self._counter("spec_decode_num_drafts", "rounds with a draft")
        self.draft_tokens = self._counter("spec_decode_num_draft_tokens", "tokens drafted")
        self.accepted_tokens = self._counter("spec_decode_num_accepted_tokens", "drafted tokens accepted")
        self._per_position = Counter(
            f"{_PREFIX}spec_decode_num_accepted_tokens_per_pos", "drafted tokens accepted, by position from 0",
            ("model_name", "position"), registry=self.registry,
        )  # fmt: skip
        self.first_token = self._histogram("time_to_first_token_seconds", "from the call to the first token", _FIRST)
        self.gap = self._histogram("inter_token_latency_seconds", "gap between two rounds that wrote tokens", _SHORT)
        self.token_gap = self._histogram(
            "inter_token_latency_per_token_seconds", "the same for each token; 0 for those that came together", _SHORT
        )
        self.per_output = self._histogram(
            "request_time_per_output_token_seconds", "mean of a text's tokens after its first", _SHORT
        )
        self.whole = self._histogram("e2e_request_latency_seconds", "from the call to the end", _LONG)
        self.queued = self._histogram("request_queue_time_seconds", "from the call to the first pass", _LONG)
        self.prefill = self._histogram("request_prefill_time_seconds", "from the first pass to the first token", _LONG)
        self.decode = self._histogram("request_decode_time_seconds", "from the first token to the last", _LONG)
        self.inference = self._histogram(
            "request_inference_time_seconds", "from the first pass to the last token", _LONG
        )
        self.prompt_sizes = self._histogram("request_prompt_tokens", "prompt tokens of a text", _COUNTS)
        self.written_sizes = self._histogram("request_generation_tokens", "tokens written of a text", _COUNTS)
        self.asked_sizes = self._histogram("request_params_max_tokens", "the most tokens a text might have", _COUNTS)
        self.pass_tokens = self._histogram(
            "iteration_tokens_total", "prompt tokens read and tokens written, of one pass", _COUNTS
        )

    def accepted_at(self, position: int) -> None:
        """A draft token at this position, from 0, was accepted."""
        self._per_position.labels(self._name, str(position)).inc()

    def _gauge(self, name: str, told: str) -> Gauge:
        return Gauge(f"{_PREFIX}{name}", told, ("model_name",), registry=self.registry).labels(self._name)

    def _counter(self, name: str, told: str) -> Counter:
        return Counter(f"{_PREFIX}{name}", told, ("model_name",), registry=self.registry).labels(self._name)

    def _histogram(self, name: str, told: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(f"{_PREFIX}{name}", told, ("model_name",), registry=self.registry, buckets=buckets)
        return made.labels(self._name)
