"""What `/metrics` counts is what was asked and written."""

from collections.abc import Callable
from math import isnan
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from outdraft import LLM, SamplingParams, record_trace
from outdraft.core.decisions import Decisions
from outdraft.core.events import StepEvent, StepTimes
from outdraft.core.request import Request
from outdraft.decode.step import decide
from outdraft.server.metrics import EngineWatch, Instruments

Scrape = Callable[[], dict[str, float]]
BODY = {"prompt": "It was late when", "max_tokens": 24, "temperature": 0, "ignore_eos": True}


@pytest.fixture
def scrape(client: httpx.Client) -> Scrape:
    """All samples by name, those of one label with its value behind."""

    def read() -> dict[str, float]:
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(client.get("/metrics").text):
            for sample in family.samples:
                assert sample.labels["model_name"] == "target"
                more = [value for name, value in sample.labels.items() if name != "model_name"]
                found[" ".join((sample.name.removeprefix("outdraft:"), *more))] = sample.value
        return found

    return read


def test_counters_agree_with_what_a_reply_tells(client: httpx.Client, scrape: Scrape) -> None:
    before = scrape()
    reply = client.post("/v1/completions", json=BODY).json()
    after = scrape()
    told = reply["metrics"]["speculative_decoding"]

    def grew(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    rounds = grew("inter_token_latency_seconds_count") + 1
    assert grew("prompt_tokens_total") == reply["usage"]["prompt_tokens"]
    assert grew("generation_tokens_total") == grew("request_generation_tokens_sum") == 24
    assert grew("inter_token_latency_per_token_seconds_count") == 23
    assert rounds == round(24 / told["tokens_per_target_pass"])
    assert grew("inter_token_latency_per_token_seconds_sum") == pytest.approx(grew("inter_token_latency_seconds_sum"))
    zeros = grew("inter_token_latency_per_token_seconds_bucket 0.001") - grew(
        "inter_token_latency_seconds_bucket 0.001"
    )
    assert zeros == 24 - rounds, "tokens that came together have no gap"
    assert grew("spec_decode_num_drafts_total") == told["num_spec_steps"] > 0
    assert grew("spec_decode_num_draft_tokens_total") == told["num_draft_tokens"]
    accepted = grew("spec_decode_num_accepted_tokens_total")
    assert accepted == told["num_accepted_draft_tokens"] > 0
    rounds_by = told["num_spec_steps_by_method"]
    assert {name: grew(f"spec_decode_num_drafts_by_method_total {name}") for name in rounds_by} == rounds_by
    assert sum(grew(f"spec_decode_num_accepted_tokens_by_method_total {name}") for name in rounds_by) == accepted
    positions = [grew(f"spec_decode_num_accepted_tokens_per_pos_total {i}") for i in range(16)]
    assert sum(positions) == accepted and positions == sorted(positions, reverse=True)
    assert grew("request_success_total length") == 1
    assert after["num_requests_running"] == after["num_requests_waiting"] == after["kv_cache_usage_perc"] == 0


def test_times_of_a_request_add_up(client: httpx.Client, scrape: Scrape) -> None:
    before = scrape()
    client.post("/v1/completions", json=BODY)
    after = scrape()
    seconds = {
        name: after[f"{name}_sum"] - before[f"{name}_sum"]
        for name in (
            "request_queue_time_seconds",
            "request_prefill_time_seconds",
            "request_decode_time_seconds",
            "request_inference_time_seconds",
            "time_to_first_token_seconds",
            "e2e_request_latency_seconds",
        )
    }
    queue, prefill, decode, inference, first, whole = seconds.values()
    assert inference == pytest.approx(prefill + decode)
    assert first == pytest.approx(queue + prefill)
    assert whole >= queue + inference - 1e-6 and min(seconds.values()) >= 0
    per_token = "request_time_per_output_token_seconds_sum"
    assert after[per_token] - before[per_token] == pytest.approx(decode / 23)


def test_who_leaves_counts_as_aborted(client: httpx.Client, scrape: Scrape) -> None:
    before = scrape()
    with client.stream("POST", "/v1/completions", json=BODY | {"stream": True, "max_tokens": 900}) as reply:
        pieces = reply.iter_raw()
        next(pieces)
        running = client.get("/load").json()
        assert running["server_load"] == running["num_requests_running"] == 1 and running["kv_cache_usage_perc"] > 0
    name = "request_success_total abort"
    while client.get("/load").json()["num_requests_running"]:
        pass
    assert scrape()[name] - before[name] == 1


def test_a_trace_is_recorded_beside(llm: LLM, scrape: Scrape, tmp_path: Path) -> None:
    before = scrape()
    size = llm.generate("It was late when", SamplingParams(max_tokens=4, ignore_eos=True))
    rows = scrape()["iteration_tokens_total_sum"] - before["iteration_tokens_total_sum"]
    assert rows == len(size.prompt_token_ids) + 4
    before = scrape()
    with record_trace(llm, tmp_path / "trace.jsonl"):
        llm.generate("It was late when", SamplingParams(max_tokens=4, ignore_eos=True))
    llm.generate("It was late when", SamplingParams(max_tokens=3, ignore_eos=True))
    after = scrape()
    assert after["generation_tokens_total"] - before["generation_tokens_total"] == 7
    assert after["request_success_total length"] - before["request_success_total length"] == 2
    assert '"ends"' in (tmp_path / "trace.jsonl").read_text()


def test_prefixes_that_were_taken_over_are_counted() -> None:
    from outdraft.server.service import Service
    from outdraft.server.settings import ServerSettings

    with LLM("zoo:target", drafter="none", kv_cache="paged", enable_prefix_caching=True) as llm:
        service = Service(llm, ServerSettings(served_model_name=("m",)))
        prompt = {"prompt_token_ids": list(range(1, 41))}
        cached = [llm.generate(prompt, SamplingParams(max_tokens=2)).num_cached_tokens for _ in range(2)]
        read = service.instruments.registry.get_sample_value
        assert cached[1] >= 16
        assert read("outdraft:prefix_cache_queries_total", {"model_name": "m"}) == 80
        assert read("outdraft:prefix_cache_hits_total", {"model_name": "m"}) == sum(cached)
        service.stop_listening()
        llm.generate(prompt, SamplingParams(max_tokens=2))
        assert read("outdraft:prefix_cache_queries_total", {"model_name": "m"}) == 80


def test_a_prompt_in_slices_has_waited_until_its_first_slice() -> None:
    """The rounds of others between its slices are no time in the queue, and a slice is no pass."""
    instruments, llm = Instruments("target"), LLM("zoo:target", drafter="none")
    watch = EngineWatch(instruments, llm.engine)
    seq = llm.engine.prepare(Request(prompt_token_ids=(1, 2, 3)), asked_at=1.0)
    watch.asked(seq, 1.0)
    decisions = decide([seq], llm.engine.parts)
    watch.passed(decisions, [], 1.5, 0.1)
    watch.passed(decisions, [StepEvent(seq_id=seq.id, num_certain=2)], 9.0, 0.1)
    samples = [sample for family in instruments.registry.collect() for sample in family.samples]
    found = {sample.name.removeprefix("outdraft:"): sample.value for sample in samples}
    assert found["request_queue_time_seconds_sum"] == pytest.approx(0.4)
    assert found["iteration_tokens_total_count"] == 1


def test_who_gave_back_its_memory_and_was_never_read_again_is_counted() -> None:
    instruments, llm = Instruments("target"), LLM("zoo:target", drafter="none")
    watch = EngineWatch(instruments, llm.engine)
    seq = llm.engine.prepare(Request(prompt_token_ids=(1, 2, 3)), asked_at=1.0)
    watch.asked(seq, 1.0)
    seq.num_preempted, seq.finish_reason = 1, "timeout"
    watch.ended(seq, 2.0)
    assert instruments.registry.get_sample_value("outdraft:num_preemptions_total", {"model_name": "target"}) == 1


def test_the_gain_of_a_batch_is_measured_against_plain_passes_of_as_many_texts() -> None:
    class Costs:
        def plain(self, num_texts: int) -> float | None:
            return {2: 3.0}.get(num_texts)

    instruments, llm = Instruments("target"), LLM("zoo:target", drafter="none")
    llm.engine.parts.policy.costs = Costs()
    watch = EngineWatch(instruments, llm.engine)

    def read(name: str) -> float | None:
        return instruments.registry.get_sample_value(f"outdraft:{name}", {"model_name": "target"})

    def passed(*num_tokens: int, num_certain: int = 0) -> None:
        times = StepTimes(draft=0.5, target=1.0, rest=0.5)
        events = [
            StepEvent(seq_id=i, tokens=(1,) * count, num_certain=num_certain, times=times)
            for i, count in enumerate(num_tokens)
        ]
        watch.passed(Decisions(each=()), events, 1.0, 1.0)

    assert isnan(read("estimated_speedup") or 0.0)
    passed(5)  # nothing was measured of a text alone
    passed(4, 4, num_certain=2)  # a prompt was read
    assert read("spec_decode_compared_seconds_total") == 0
    passed(4, 2)
    assert read("spec_decode_compared_seconds_total") == 4.0, "the shares of two texts"
    assert read("spec_decode_plain_seconds_total") == 9.0, "three passes of both"
    assert read("estimated_speedup") == 9 / 4
