"""The GPU's path on a CPU: every drafter through static memory, pages and recorded passes writes what it should."""

import pytest
import torch
from contracts.spec_rows import ROWS
from recording import record_by_tracing

from outdraft.cache.config import CacheConfig
from outdraft.core.params import SamplingParams
from outdraft.core.request import Request
from outdraft.engine.graphed import GraphedRunner
from outdraft.nn.capture import call_each_time
from outdraft.testing.contract.ground import PROMPTS
from outdraft.testing.contract.ends import context_end, ends_inside_a_run
from outdraft.testing.contract.identity import alone_equals_batch, joins_and_cancels
from outdraft.testing.contract.upkeep import cache_equals_recompute, leaks_nothing
from outdraft.testing.subject import Subject, run
from outdraft.testing.tiny import TINY_ARCHITECTURES


class GraphedSubject(Subject):
    """Every engine's target is a `GraphedRunner`."""

    record = staticmethod(record_by_tracing)

    def make_runner(self, max_len: int | None, cache: CacheConfig) -> GraphedRunner:
        self.decoder.set_exact(False)
        self.runner = GraphedRunner(self.decoder, record=self.record, max_len=max_len, cache=cache)
        return self.runner


class EagerSubject(GraphedSubject):
    record = staticmethod(call_each_time)


# Not `bits_do_not_depend_on_the_draft`: buckets go through different matrix products, and this path says so.
KEPT = [
    alone_equals_batch, joins_and_cancels, ends_inside_a_run, context_end, cache_equals_recompute, leaks_nothing,
]  # fmt: skip
SHAPES = ("none", "ngram-tree", "lookahead", "draft_model-twin", "draft_model-tree", "early_exit", "eagle")


@pytest.fixture(scope="module", params=[row for row in ROWS if row.name in SHAPES], ids=lambda row: row.name)
def subject(request, tmp_path_factory) -> Subject:
    return EagerSubject(request.param, tmp_path_factory.mktemp("side"))


@pytest.mark.parametrize("check", KEPT, ids=lambda check: check.__name__)
def test_contract(subject, check):
    check(subject)


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in SHAPES], ids=lambda row: row.name)
def test_recorded_passes_write_the_same(row, tmp_path):
    """Nothing of the host is frozen into a recording: several lengths, ragged batches, trees and masks replay it."""
    subject = GraphedSubject(row, tmp_path)
    engine = subject.engine()
    batch = [Request(prompt_token_ids=prompt, params=SamplingParams(max_tokens=20)) for prompt in PROMPTS[:3]]
    for outcome, request in zip(run(engine, batch), batch, strict=True):
        assert outcome.seq.output == subject.oracle(request)
    recordings = subject.runner.static.recordings
    assert recordings.reason is None
    assert len(recordings) > 0
