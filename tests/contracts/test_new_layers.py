"""Layers that no shipped model has, under the contract: a recurrence for attention, experts for an MLP."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from outdraft.cache.config import CacheConfig
from outdraft.cache.hybrid import HybridCache
from outdraft.cache.state import refuse_over_states
from outdraft.core.draft import chain
from outdraft.core.target import Needs
from outdraft.engine.graphed import GraphedRunner
from outdraft.engine.runner import Runner
from outdraft.models.networks.native import find_unknown
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import CausalContext, WatchedContext
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.segment import chain_segments
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.contract.budgets import budget_zero_is_plain, counters_add_up
from outdraft.testing.contract.crowds import crowds_write_the_same
from outdraft.testing.contract.ends import ends_inside_a_run
from outdraft.testing.contract.ground import GREEDY, requests
from outdraft.testing.contract.guided import guided_requests_write_the_same
from outdraft.testing.contract.identity import (
    alone_equals_batch,
    bits_do_not_depend_on_the_draft,
    greedy_equals_reference,
    joins_and_cancels,
    seeded_equals_reference,
)
from outdraft.testing.contract.upkeep import leaks_nothing
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.testing.tiny import random_decoder, tiny_config
from tests.helpers.new_layers import Experts, Recurrence
from tests.helpers.scripted import RandomTreeDrafter, alternating

MODELS = {
    "hybrid": {"mixers": (Recurrence(), None)},
    "recurrent": {"mixers": (Recurrence(4), Recurrence(6))},
    "experts": {"feed_forwards": (None, Experts())},
    "both": {"mixers": (None, Recurrence()), "feed_forwards": (Experts(), Experts(3, 1))},
}
short = partial(greedy_equals_reference, depths=(1, 4), penalised=())


def memory_equals_recompute(subject):
    """After each commit of three texts in a batch; and nothing is held when they are over."""
    engine = subject.engine(recheck=True, depth=4)
    run(engine, requests(GREEDY)[:3])
    cache = engine.parts.target.target.cache
    cache.check()
    assert not cache.ids() and (not isinstance(cache, HybridCache) or not cache.states.ids())


CASES = [  # every check with a chain and with a tree, every model with each drafter
    ("hybrid", "chain", short),
    ("hybrid", "tree", short),
    ("experts", "chain", short),
    ("both", "tree", memory_equals_recompute),
    ("recurrent", "chain", memory_equals_recompute),
    ("experts", "ngram", memory_equals_recompute),
    ("recurrent", "recycling", short),
    ("both", "ngram", seeded_equals_reference),
    ("both", "recycling", alone_equals_batch),
    ("experts", "ngram", alone_equals_batch),
    ("hybrid", "ngram", joins_and_cancels),
    ("recurrent", "recycling", ends_inside_a_run),
    ("both", "chain", ends_inside_a_run),
    ("both", "recycling", bits_do_not_depend_on_the_draft),
    ("experts", "recycling", bits_do_not_depend_on_the_draft),
    ("hybrid", "ngram", bits_do_not_depend_on_the_draft),
    ("hybrid", "ngram", leaks_nothing),
    ("both", "ngram", budget_zero_is_plain),
    ("hybrid", "recycling", counters_add_up),
    ("both", "ngram", partial(crowds_write_the_same, kinds=(False,))),
    ("recurrent", "ngram", partial(guided_requests_write_the_same, depths=(3,))),
]


def target(name, vocab_size, dtype):
    return random_decoder(replace(tiny_config(vocab=vocab_size), **MODELS[name]), seed=1, dtype=dtype)


TARGETS = {name: partial(target, name) for name in MODELS}  # what each says is known once


class Scripted:
    """In place of a method: drafters that know the target."""

    def __init__(self, subject, kind):
        self.subject, self.kind = subject, kind

    def build(self, options, port):
        ask = self.subject.next_logits
        return alternating(ask) if self.kind == "chain" else RandomTreeDrafter(lambda tokens: ask(tokens).softmax(-1))


def subject_of(name, drafter, directory):
    scripted = drafter in ("chain", "tree")
    row = DrafterRow(drafter="ngram" if scripted else drafter, target=TARGETS[name])
    made = Subject(row, directory)
    if scripted:
        made.method = Scripted(made, drafter)
    return made


def name_of(case):
    return getattr(case, "__name__", None) or case.func.__name__


@pytest.mark.parametrize(("model", "drafter", "check"), CASES, ids=lambda x: x if isinstance(x, str) else name_of(x))
def test_the_contract(model, drafter, check, tmp_path):
    check(subject_of(model, drafter, tmp_path))


def test_a_recurrence_is_what_it_says():
    """o_t = sum over s <= t of (g_{s+1} ... g_t) (q_t k_s) v_s, without any state."""
    kind = Recurrence(5)
    config = replace(tiny_config(layers=1), mixers=(kind,))
    layer = random_decoder(config, seed=3).layers[0].mixer
    x = torch.randn(7, config.hidden_size, dtype=torch.float64)
    q, k, v, g = layer.put(x).split([5, 5, 5, 1], 1)
    logs = torch.sigmoid(g + 1).log().cumsum(0)[:, 0]
    kept = (logs[:, None] - logs[None]).exp().tril()
    got = layer(x, None, CausalContext(1, 7))
    assert torch.allclose(got, layer.get((q @ k.T * kept) @ v))
    assert torch.equal(got, layer(x, None, WatchedContext(CausalContext(1, 7))))


def test_a_row_of_experts_does_not_depend_on_its_company():
    layer = random_decoder(replace(tiny_config(layers=1), feed_forwards=(Experts(),)), seed=3).layers[0].feed_forward
    x = torch.randn(9, 32, dtype=torch.float64)
    together = layer(x, (), True)
    assert all(torch.equal(together[i], layer(x[i : i + 1], (), True)[0]) for i in range(9))
    assert len({tuple(row) for row in layer.router(x).topk(2).indices.tolist()}) > 2


def decoder_of(name, **kept):
    return random_decoder(replace(tiny_config(), **MODELS[name], **kept), dtype=torch.float64)


class Later(Runner):
    """A commit that keeps the state after the last row of the draft."""

    def commit(self, seq, keep):
        left = self.cache._left[seq.id]
        left[keep[-1]] = left[max(left)]
        super().commit(seq, keep)


class Chained(Runner):
    """Nodes of a tree that read the state of the row before them."""

    def _segment(self, packed, i):
        return replace(super()._segment(packed, i), parents=None)


class Leaking(Runner):
    """States after tentative rows that outlive their commit."""

    def commit(self, seq, keep):
        left = dict(self.cache._left[seq.id])
        super().commit(seq, keep)
        self.cache._left[seq.id] = left


class Forgotten(Runner):
    """A text whose rows are freed, and whose state is not."""

    def end(self, seq):
        self.cache.rows.free(seq.id)


MUTANTS = {
    Later: "S of layer 0 differs from a fresh pass",
    Chained: "S of layer 0 differs|of layer 1 differs",
    Leaking: "holds states after rows .*, which are gone",
    Forgotten: "have only rows, or a state",
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_fails(mutant, tmp_path):
    subject = subject_of("hybrid", "tree", tmp_path)
    subject.make_runner = lambda max_len, cache: mutant(subject.decoder, max_len=max_len, cache=cache)
    with pytest.raises(AssertionError, match=MUTANTS[mutant]):
        memory_equals_recompute(subject)


def test_what_recurrent_layers_refuse():
    decoder = decoder_of("hybrid")
    with pytest.raises(CapabilityError, match=r"enable_prefix_caching: layers \[0\] of this model are recurrent"):
        Runner(decoder, cache=CacheConfig(layout="paged", num_pages=9, prefixes=True))
    with pytest.raises(CapabilityError, match=r"recorded passes .* layers \[0\]"):
        GraphedRunner(decoder, record=lambda make: make)
    with pytest.raises(ConfigError, match="rounding knows layers of attention and an MLP"):
        quantize_decoder(decoder, QuantConfig())
    assert "layers of Recurrence" in find_unknown(decoder.config)
    assert "layers of Experts" in find_unknown(decoder_of("experts").config)
    with pytest.raises(CapabilityError, match=r"guard=0.5 reads committed rows again"):
        refuse_over_states("ngram", Needs(), 0.5)


@pytest.mark.parametrize("drafter", ["early_exit", "swift"])
def test_a_drafter_that_runs_parts_of_the_target_is_refused(drafter):
    needs = Needs(layer_subset=drafter == "swift", resume_layer=1 if drafter == "early_exit" else None)
    with pytest.raises(CapabilityError, match="can_trim=False"):
        refuse_over_states(drafter, needs)


def test_a_draft_with_a_mask_of_its_own_is_refused(tmp_path):
    subject = subject_of("hybrid", "ngram", tmp_path)
    engine = subject.engine()
    engine.parts.drafter.propose = lambda seqs, budgets: [
        chain([seq.pending, 3], mask=torch.ones(2, 2).tril().bool()) for seq in seqs
    ]
    with pytest.raises(CapabilityError, match="brings a mask of its own, and layer 0 is recurrent"):
        run(engine, requests(GREEDY)[:1])


def test_a_draft_model_with_recurrent_layers_is_refused():
    decoder = decoder_of("hybrid")
    cache = CacheConfig().build(2, 2, 8, torch.float64, torch.device("cpu"), 64)
    cache.add(0)
    cache.reserve(0, 1)
    context = CachedContext(cache, chain_segments([0], [1], [0]))
    with pytest.raises(CapabilityError, match="layer 0 is recurrent, and this cache keeps keys and values only"):
        decoder.run(decoder.embed(torch.tensor([1]), torch.tensor([0])), torch.tensor([0]), context)
