"""The GPU's path on a CPU: over static memory, pages and recorded passes every shape of draft writes what it should."""

from dataclasses import replace

import pytest
import torch
from contracts.spec_rows import ROWS
from recording import record_by_tracing

from outdraft.cache.config import CacheConfig
from outdraft.core.request import Request
from outdraft.engine.assembly.assemble import make_runner
from outdraft.engine.graphed import ROW_TILE, GraphedRunner
from outdraft.engine.runner import Runner
from outdraft.nn.capture import call_each_time
from outdraft.nn.linear import LinearMap
from outdraft.options.params import SamplingParams
from outdraft.testing.contract.ends import context_end, ends_inside_a_run
from outdraft.testing.contract.ground import GREEDY, PENALISED_SEEDED, PROMPTS, SEEDED
from outdraft.testing.contract.guided import guided, guided_requests_write_the_same, two_passes
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.testing.tiny import TINY_ARCHITECTURES, tiny_model

SHAPES = (
    "ngram-tree",
    "lookahead",
    "draft_model-twin",
    "draft_model-tree",
    "early_exit",
    "eagle",
    "draft_verify",
    "magicdec-snapkv",
)
ROW_OF = {row.name: row for row in ROWS}


class Graphed(Subject):
    """Every engine's target is a `GraphedRunner` whose passes are traced and replayed."""

    record = staticmethod(record_by_tracing)

    def make_runner(self, max_len: int | None, cache: CacheConfig) -> GraphedRunner:
        self.decoder.set_exact(False)
        self.runner = GraphedRunner(self.decoder, record=self.record, max_len=max_len, cache=cache)
        return self.runner


class Called(Graphed):
    record = staticmethod(call_each_time)


def write_and_compare(subject: Graphed, requests: list[Request], **engine: object) -> None:
    wanted = [subject.oracle(request) for request in requests]
    for outcome, ids in zip(run(subject.engine(**engine), requests), wanted, strict=True):
        assert outcome.seq.output == ids


@pytest.mark.parametrize("k", [0, 4, 40])
def test_every_product_behind_the_prompt_has_the_same_rows(k, tmp_path, monkeypatch):
    """One shape, one order of sums: neither the draft nor the other requests of a batch change a row's bits."""
    subject = Called(ROW_OF["ngram-tree"], tmp_path)
    engine = subject.engine(depth=k, nodes=k)
    seqs = [engine.add(request) for request in requests(12)]
    while not all(seq.num_output for seq in seqs):
        engine.step()
    shapes, product = set(), LinearMap.product
    monkeypatch.setattr(LinearMap, "product", lambda self, x: shapes.add(x.shape[0]) or product(self, x))
    while engine.has_work:
        engine.step()
    assert shapes == {ROW_TILE}


def requests(max_tokens: int, **params: object) -> list[Request]:
    return [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=max_tokens, **params)) for p in PROMPTS[:4]]


@pytest.mark.parametrize("name", SHAPES)
def test_a_ragged_batch_and_its_cache(name, tmp_path):
    """Greedy and seeded; after every commit the pool equals a fresh recompute, and nothing stands where nothing may."""
    subject = Called(ROW_OF[name], tmp_path)
    write_and_compare(subject, requests(12), recheck=True)
    write_and_compare(subject, requests(8, temperature=1.0, seed=3))


@pytest.mark.parametrize("name", ["ngram-tree", "lookahead", "draft_model-twin"])
def test_recorded_passes_write_the_same(name, tmp_path):
    """Nothing of the host is frozen into a recording: other lengths, batches, trees and masks replay it."""
    subject = Graphed(ROW_OF[name], tmp_path)
    write_and_compare(subject, requests(7)[1:3])
    recordings = subject.runner.static.recordings
    assert recordings.reason is None and len(recordings) > 0


@pytest.mark.parametrize("check", [ends_inside_a_run, context_end], ids=lambda check: check.__name__)
def test_ends(check, tmp_path):
    check(Called(ROW_OF["draft_model-twin"], tmp_path))


@pytest.mark.parametrize("architecture", TINY_ARCHITECTURES)
def test_every_architecture(architecture, tmp_path):
    """Windows, biases, norms of heads, learned positions: through the same static tensors."""

    def target(vocab_size, dtype):
        return tiny_model(architecture, vocab=vocab_size, dtype=dtype, seed=1)

    row = DrafterRow(drafter="ngram", target=target, options={"width": 2})
    write_and_compare(Called(row, tmp_path), requests(12)[2:4])


def test_a_large_pass_is_not_recorded(tmp_path):
    """Prompt rows and the pass that ends the prompt run as they come; only rounds are recorded."""
    subject = Graphed(DrafterRow(drafter="none"), tmp_path)
    engine = subject.engine()
    engine.add(Request(prompt_token_ids=tuple(range(1, 40)), params=SamplingParams(max_tokens=3)))
    engine.step()
    assert len(subject.runner.static.recordings) == 0
    engine.step()
    assert len(subject.runner.static.recordings) == 1


@pytest.mark.parametrize(
    ("name", "params"),
    [("ngram-tree", GREEDY), ("lookahead", PENALISED_SEEDED), ("draft_verify", SEEDED), ("eagle", SEEDED)],
)
def test_guided_requests_write_the_same(name, params, tmp_path):
    guided_requests_write_the_same(Called(ROW_OF[name], tmp_path), depths=(4,), settings=(params,))


def test_both_prompts_rows_are_in_one_recorded_pass(tmp_path):
    subject = Graphed(ROW_OF["ngram-tree"], tmp_path)
    asked = [*requests(5, guidance_scale=1.8)[1:3], requests(5)[3]]
    wanted = [two_passes(subject, request) for request in asked]
    assert [outcome.seq.output for outcome in run(guided(subject.engine()), asked)] == wanted
    assert subject.runner.static.recordings.reason is None and len(subject.runner.static.recordings) > 0


@pytest.mark.parametrize("name", ["ngram-tree", "eagle"])
def test_prompts_are_scored(name, tmp_path):
    """By plain rows and by rows whose states are tapped; alone a prompt of one chunk, and beside texts that decode."""
    subject = Called(ROW_OF[name], tmp_path)
    asked = [replace(one, params=replace(one.params, prompt_logprobs=1)) for one in requests(6)]
    for outcome, request in zip(run(subject.engine(), asked), asked, strict=True):
        ids = request.prompt_token_ids
        told = [one for event in outcome.events for one in event.prompt_logprobs]
        rows = [torch.log_softmax(subject.next_logits(list(ids[:i])), -1) for i in range(1, len(ids))]
        assert [one.raw for one in told] == pytest.approx([float(r[i]) for r, i in zip(rows, ids[1:], strict=True)])
        assert outcome.seq.output == subject.oracle(request)


def test_a_pool_that_grows_is_recorded_anew(tmp_path):
    """Recordings stand on one pool; the text goes on over the next."""
    subject = Graphed(DrafterRow(drafter="none"), tmp_path)
    engine = subject.engine()
    before = subject.runner.cache.pool()[0]  # kept, so that no other has its address
    prompt = tuple(1 + i % 60 for i in range(105))  # a pass is recorded before seven pages are full
    request = Request(prompt_token_ids=prompt, params=SamplingParams(max_tokens=12))
    assert run(engine, [request])[0].seq.output == subject.oracle(request)
    assert subject.runner.cache.pool()[0].data_ptr() != before.data_ptr()


def test_damaged_weights_are_an_error_and_not_a_text(tmp_path):
    subject = Called(DrafterRow(drafter="none"), tmp_path)
    engine = subject.engine()
    engine.add(requests(4)[1])
    engine.step()
    with torch.no_grad():
        subject.decoder.final_norm.weight.fill_(float("nan"))
    with pytest.raises(Exception, match=r"not finite|weights are damaged"):
        engine.step()


def test_a_cpu_keeps_its_own_runner(tmp_path):
    decoder = Called(DrafterRow(drafter="none"), tmp_path).decoder
    made = make_runner(decoder, max_len=None, exact=False, enforce_eager=False)
    assert type(made) is Runner and made.record is None
