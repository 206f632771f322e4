"""Drafters that have a native form, on a target that the kernels hold: what depends on the kernels, again.

The tiny targets of the suite are float64 and stay with PyTorch, so the native chains and passes are proven here.
Guesses are compared with those of the same networks through PyTorch, too.
"""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from contracts.at_once import bits, crowds, reuse, texts
from contracts.native_rows import BLOCKS, FEATURES, ROWS, small, wide

from outdraft.cache.static import StaticCache
from outdraft.core.draft import chain
from outdraft.core.drafter import Seen
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.engine.runner import Runner
from outdraft.kernels.library import library
from outdraft.kernels.threads import torch_threads
from outdraft.models.networks.native import NativeDecoder
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment
from outdraft.options.params import SamplingParams
from outdraft.testing.contract import sampled_distribution_is_the_targets
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")


SLOW = pytest.mark.slow
KNOWN = defaultdict(dict)  # by vocabulary: what the target says after a text
# Each way of drawing; the others have the same one over another network.
DRAWN = [row for row in ROWS if row.drafter in ("draft_model", "early_exit") or row.label in ("chain", "tree")]


class NativeSubject(Subject):
    """A row over a target on the kernels."""

    def __init__(self, row: DrafterRow, directory: Path, *, vocab_size: int = 61) -> None:
        self.row, self.directory, self.vocab_size = row, directory, vocab_size
        self.method = find("drafter", row.drafter)
        with torch_threads(1):  # and one of ours: threads that wait for each other crawl on a busy machine
            self.decoder = NativeDecoder(small(vocab_size))
        self.options = make_options(self.method, {**row.side(self.decoder, directory), **row.options})
        self._known = KNOWN[vocab_size]

    def in_float32(self) -> "NativeSubject":
        """Its logits are float32 already."""
        return self

    def next_logits(self, tokens):
        """One pass over a fresh cache."""
        key = tuple(tokens)
        if key not in self._known:
            config, n = self.decoder.config, len(tokens)
            cache = StaticCache(config.num_layers, config.num_kv_heads, config.head_dim, torch.bfloat16, "cpu", 512)
            cache.add(0)
            cache.reserve(0, n)
            places = torch.arange(n)
            context = CachedContext(cache, [Segment(seq=0, start=0, stop=n, base=0)])
            hidden = self.decoder.run(self.decoder.embed(torch.tensor(tokens), places), places, context).hidden
            self._known[key] = self.decoder.logits(hidden[-1:])[0]
        return self._known[key]


@pytest.fixture(scope="module", params=ROWS, ids=lambda row: row.name)
def subject(request, tmp_path_factory) -> NativeSubject:
    return NativeSubject(request.param, tmp_path_factory.mktemp("side"))


def is_asked(turn: int, row: DrafterRow, check) -> bool:
    """Networks on features keep their rows alike: they take the checks of memory in turn."""
    return row not in (*FEATURES, *BLOCKS) or check in (texts, bits, (crowds, reuse)[turn // 2 % 2])


@pytest.mark.parametrize(
    ("subject", "check"),
    [
        pytest.param(row, check, id=f"{row.name}-{check.__name__}")
        for turn, row in enumerate(ROWS)
        for check in (texts, bits, crowds, reuse)
        if is_asked(turn, row, check)
    ],
    indirect=["subject"],
)
def test_contract(subject, check):
    check(subject, ROWS.index(subject.row))


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name, marks=() if row in DRAWN else SLOW) for row in ROWS])
def test_sampled_distribution(row, tmp_path):
    sampled_distribution_is_the_targets(NativeSubject(row, tmp_path, vocab_size=7), num_texts=240)


def first_guesses(subject: Subject, prompts, params: SamplingParams, *, runner=None, budget=None):
    """What the drafter guesses after the prompts: drafts of one batch."""
    runner = runner or Runner(subject.decoder)
    drafter = subject.method.build(subject.options, runner.port)
    engine = subject.engine()
    seqs: list[Sequence] = []
    for prompt in prompts:
        seq = engine.add(Request(prompt_token_ids=prompt, params=params))
        seq.seed, seq.coupled = 5, False
        runner.begin(seq)
        drafter.begin([seq])
        seqs.append(seq)
    with torch.inference_mode():
        for seq in seqs:
            read_prompt(seq, runner, drafter)
        return drafter.propose(seqs, [budget or Budget(depth=4)] * len(seqs))


def read_prompt(seq: Sequence, runner: Runner, drafter) -> None:
    n = len(seq.tokens) - 1
    out = runner.forward(pack([seq], [chain([seq.pending])]), drafter.needs.taps)
    runner.commit(seq, range(n))
    seq.num_cached = n
    drafter.observe([Seen(seq=seq, start=0, num_committed=n, hidden={tap: h[:n] for tap, h in out.hidden.items()})])


PROMPTS = ((3, 1, 4, 1, 5, 9, 2, 6), (7, 8, 9), (5, 6))


@pytest.mark.parametrize("params", [{}, {"temperature": 0.8}, {"temperature": 0.8, "repetition_penalty": 1.3}])
def test_guesses_are_pytorchs_and_do_not_depend_on_the_batch(subject, params):
    settings = SamplingParams(**params)
    found = first_guesses(subject, PROMPTS, settings)
    for prompt, draft in zip(PROMPTS, found, strict=True):
        (alone,) = first_guesses(subject, [prompt], settings)
        assert torch.equal(alone.tokens, draft.tokens) and torch.equal(alone.parents, draft.parents)
        assert (alone.q is None) == (draft.q is None) == (not params)
        assert alone.q is None or torch.equal(alone.q, draft.q)
    runner = Runner(wide(subject.vocab_size))
    for native, exact in zip(found, first_guesses(subject, PROMPTS, settings, runner=runner), strict=True):
        assert native.num_nodes == exact.num_nodes > 3
        if native.q is not None:
            assert float((native.q[0] - exact.q[0]).abs().sum()) / 2 < 0.03  # total variation


class Unsure:
    """Budgets with cutoffs: another one for each sequence and round."""

    def __init__(self):
        self.asked = set()

    def plan(self, seqs):
        cutoffs = [{}, {"confidence": 0.3}, {"survival": 0.1}, {"confidence": 1.0}]
        chosen = {seq.id: cutoffs[(seq.id + seq.num_output) % 4] for seq in seqs}
        self.asked = {seq for seq, cutoff in chosen.items() if cutoff}
        return [Budget(depth=5, **chosen[seq.id]) for seq in seqs]

    def update(self, events):
        for event in events:
            if event.seq_id in self.asked and event.num_draft_tokens:
                assert len(event.confidences) == event.num_accepted + event.rejected

    def end(self, seqs):
        pass


def test_budgets_with_cutoffs_change_no_text(subject):
    greedy = SamplingParams(max_tokens=20)
    settings = (greedy, replace(greedy, temperature=0.8, seed=3))
    requests = [Request(prompt_token_ids=prompt, params=params) for prompt in PROMPTS[:2] for params in settings]
    outcomes = run(subject.engine(policy=Unsure(), verifier=Auto(), recheck=True), requests)
    assert [outcome.seq.output for outcome in outcomes] == [subject.oracle(request) for request in requests]
    assert sum(outcome.stats.num_draft_tokens for outcome in outcomes) > 10


def test_an_unsure_chain_is_the_beginning_of_a_sure_one(subject):
    """Cut natively, with others going on: the same tokens, distributions and states, and nothing after the unsure
    one."""
    for params in (SamplingParams(), SamplingParams(temperature=0.8)):
        whole = first_guesses(subject, PROMPTS, params, budget=Budget(depth=4, confidence=1e-9))
        cut = first_guesses(subject, PROMPTS, params, budget=Budget(depth=4, confidence=0.2))
        for long, short in zip(whole, cut, strict=True):
            n = short.num_nodes
            if "tree" in subject.row.label:
                continue
            low = [i for i, sure in enumerate(long.confidence.tolist()) if sure < 0.2]
            assert n == (low[0] + 1 if low else 5)
            assert torch.equal(short.tokens, long.tokens[:n]) and torch.equal(short.confidence, long.confidence[:n])
            assert long.q is None or torch.equal(short.q[: n - 1], long.q[: n - 1])
            assert long.resume is None or torch.equal(short.resume.hidden, long.resume.hidden[:n])
