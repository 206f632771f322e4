"""A draft model: memory in step with the text, distributions really drawn from, ragged batches, trees, refusals."""

from dataclasses import replace

import pytest
import torch
from drafters.drafting import door, sequence, write

from outdraft.core.draft import host_tree
from outdraft.core.drafter import Seen
from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.core.verdict import Verdict
from outdraft.drafters.draft_model import DraftModelDrafter, DraftModelOptions
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.kernels.library import library
from outdraft.models.files.load import load_model, save_model
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import llama_config
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.context import CausalContext
from outdraft.nn.quant import QuantConfig
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.testing.tiny import random_decoder, tiny_config
from tests.helpers.table_target import TableTarget

V = 23


def small_decoder(seed=3, max_len=256, vocab_size=V, windows=()):
    config = llama_config(
        vocab_size=vocab_size,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        intermediate_size=48,
        max_len=max_len,
    )
    decoder = initialise(Decoder(replace(config, windows=windows), torch.float64), seed, std=0.3).requires_grad_(False)
    decoder.set_exact(True)
    return decoder


DECODER = small_decoder()


class DecoderTarget(TableTarget):
    """The reference forward of a decoder as a target: a self-drafting pair when it is the draft model, too."""

    def __init__(self, decoder, noise=0.0):
        super().__init__(vocab_size=V, max_len=256)
        self.decoder, self.noise = decoder, noise

    def next_logits(self, tokens):
        logits = fresh_logits(tokens, self.decoder)
        return logits + self.noise * super().next_logits(tokens)


def fresh_logits(tokens, decoder=DECODER):
    ids = torch.tensor(list(tokens))
    return decoder(ids, torch.arange(len(ids)), CausalContext(1, len(ids)))[-1]


def drafter(decoder=DECODER, chunk=256, **options):
    model = DraftModel(decoder, chunk=chunk)
    model._cache.rows.poison = True  # any use of a dropped row shows as NaN
    return DraftModelDrafter(DraftModelOptions(**options), model)


def audit(made, decoder=DECODER):
    """Every proposed distribution or argmax equals a fresh forward of the node's path; the memory equals the text."""

    def check(seqs, drafts):
        for seq, draft in zip(seqs, drafts, strict=True):
            tree = host_tree(draft)
            for node, children in enumerate(tree.children):
                if not children:
                    continue
                path = [tree.tokens[v] for v in tree.path(node)]
                logits = fresh_logits([*seq.tokens, *path], decoder)
                if draft.q is None:
                    best = logits.topk(len(children)).indices.tolist()
                    assert [tree.tokens[child] for child in children] == best
                else:
                    distribution = torch.softmax(logits / seq.request.params.temperature, -1)
                    assert torch.allclose(draft.q[node], distribution, atol=1e-9)
            if draft.num_nodes > 1:
                assert made.model.cached_ids(seq.id) == seq.tokens

    propose = made.propose

    def audited(seqs, budgets):
        drafts = propose(seqs, budgets)
        check(seqs, drafts)
        return drafts

    made.propose = audited
    return made


@pytest.mark.parametrize(
    ("noise", "shape", "params"),  # noise: the target accepts all, some, hardly any; then each shape in one way
    [
        (noise, shape, params)
        for i, noise in enumerate((0.0, 0.3, 9.0))
        for j, shape in enumerate(({}, {"width": 2}, {"beam": 3}))
        for k, params in enumerate(({}, {"temperature": 0.8}))
        if not noise or (i + j + k) % 2
    ],
    ids=str,
)
def test_memory_stays_in_step_with_the_text(noise, shape, params):
    made = audit(drafter(**shape))
    seqs = [sequence(p, max_tokens=20, seed=i, **params) for i, p in enumerate(([1, 2, 3], [4], [5, 6, 7, 8, 9]))]
    run = write(seqs, DecoderTarget(DECODER, noise), made, k=3)
    if noise == 0 and not params:
        assert run.tokens_per_pass > (3.0 if "beam" in shape else 3.4)  # of a beam the likeliest nodes, deep or not
    assert made.model.is_empty


@pytest.mark.parametrize("width", [1, 3])
def test_sliding_windows(width):
    decoder = small_decoder(windows=(4, None))
    made = audit(drafter(decoder, width=width), decoder)
    write([sequence([1, 2, 3, 4, 5, 6], max_tokens=20)], DecoderTarget(decoder, 0.5), made, k=6)


def test_full_acceptance_lags_by_two_tokens():
    made, seq = audit(drafter()), sequence([1, 2, 3])
    made.begin([seq])
    draft = made.propose([seq], [Budget(depth=3)])[0]
    seq.tokens += [*draft.tokens[1:].tolist(), 7]  # all three accepted, and a bonus
    made.propose([seq], [Budget(depth=2)])
    assert made.model.cached_ids(seq.id) == seq.tokens


def test_a_round_without_a_budget_is_made_up_later():
    made, seq = audit(drafter()), sequence([1, 2, 3])
    made.begin([seq])
    for tokens, depth in (([4], 0), ([5, 6], 2), ([7], 0), ([8], 0), ([9, 1, 2], 3)):
        seq.tokens += tokens
        assert made.propose([seq], [Budget(depth=depth)])[0].num_nodes == depth + 1


def counted(made):
    """How many tokens each pass of the draft model is fed, from now on."""
    network, fed = made.model._network, []
    logits = network.logits
    network.logits = lambda tokens, *rest: fed.append(len(tokens)) or logits(tokens, *rest)
    return fed


def test_what_was_guessed_and_accepted_is_not_read_again():
    made, seq = drafter(), sequence([1, 2, 3])
    made.begin([seq])
    draft = made.propose([seq], [Budget(depth=4)])[0]
    seq.tokens += [*draft.tokens[1:4].tolist(), 7]  # three of four accepted, and all of the three have rows
    fed = counted(made)
    made.propose([seq], [Budget(depth=1)])
    assert fed == [1] and made.model.cached_ids(seq.id) == seq.tokens


def test_a_level_with_several_children_makes_a_tree():
    assert DraftModelOptions(expansion=(1, 1)).is_chain and not DraftModelOptions(expansion=(2, 1)).is_chain
    made, seq = drafter(expansion=(2, 1)), sequence([1, 2, 3])
    made.begin([seq])
    assert made.propose([seq], [Budget(depth=5)])[0].parents.tolist() == [-1, 0, 0, 1, 2]


def test_only_what_a_rule_has_judged_reaches_the_model():
    made, seq, told = drafter(), sequence([1, 2, 3]), []
    made.model.confirm = lambda seq, num_accepted: told.append(num_accepted)
    made.observe(
        [
            Seen(seq=seq, start=0, num_committed=2),
            Seen(seq=seq, start=2, num_committed=3, verdict=Verdict((1, 2), 5, False)),
        ]
    )
    assert told == [2]


def test_a_long_prompt_is_read_in_chunks():
    made, seq = audit(drafter(chunk=8)), sequence([i % V for i in range(61)])
    made.begin([seq])
    made.propose([seq], [Budget(depth=2)])


@pytest.mark.parametrize("shape", [{}, {"width": 3}, {"beam": 3}], ids=str)
def test_a_batch_does_not_change_a_guess(shape):
    def guesses(texts, depths):
        made = drafter(**shape)
        seqs = [sequence(t, seed=11, temperature=1.0) for t in texts]
        made.begin(seqs)
        return made.propose(seqs, [Budget(depth=d, nodes=9) for d in depths])

    texts, depths = ([1, 2, 3], [4] * 30, [9], [1, 2]), (4, 2, 5, 0)
    for text, depth, draft in zip(texts, depths, guesses(texts, depths), strict=True):
        alone = guesses([text], [depth])[0]
        assert torch.equal(alone.tokens, draft.tokens)
        assert alone.q is None or torch.equal(alone.q, draft.q)


def test_budgets():
    for width in (1, 2):
        made, seq = drafter(width=width), sequence([1, 2, 3])
        made.begin([seq])
        for depth, nodes in ((0, None), (3, None), (3, 0), (4, 2), (1, 9)):
            draft = made.propose([seq], [Budget(depth=depth, nodes=nodes)])[0]
            assert max(host_tree(draft).depths) <= depth
            assert nodes is None or draft.num_nodes - 1 <= nodes


@pytest.mark.parametrize("params", [{}, {"temperature": 0.8}], ids=str)
def test_a_beam_has_so_many_nodes_on_a_level(params):
    made, seq = drafter(beam=3), sequence([1, 2, 3], **params)
    made.begin([seq])
    for depth, nodes, size in ((4, None, 12), (4, 5, 5), (1, None, 3), (0, None, 0)):
        draft = made.propose([seq], [Budget(depth=depth, nodes=nodes)])[0]
        assert draft.num_nodes == 1 + size
        if params and size == 12:
            assert torch.bincount(torch.tensor(host_tree(draft).depths)).tolist() == [1, 3, 3, 3, 3]


def test_the_draft_models_own_context_is_respected():
    seq = sequence(range(10))
    made = drafter(small_decoder(max_len=12))
    made.begin([seq])
    depths = []
    for _ in range(5):
        depths.append(made.propose([seq], [Budget(depth=5)])[0].num_nodes - 1)
        seq.tokens.append(1)
    assert depths == [3, 2, 1, 0, 0]


def test_greedy_option_and_confidence():
    seq = sequence([1, 2, 3], temperature=1.0)
    made = drafter(sample="greedy", confidence_threshold=1.0)
    made.begin([seq])
    draft = made.propose([seq], [Budget(depth=4)])[0]
    assert draft.q is None and draft.tokens.tolist() == [3, int(fresh_logits([1, 2, 3]).argmax())]


class Port:
    vocab_size, dtype, device = V, torch.float64, torch.device("cpu")
    record, exact, codec, renews = None, True, None, False


def test_build_loads_and_checks_the_vocabulary(tmp_path):
    method = find("drafter", "draft_model")
    save_model(DECODER, tmp_path / "fits")
    save_model(small_decoder(vocab_size=29), tmp_path / "other")
    made = method.build(make_options(method, {"model": str(tmp_path / "fits")}), door(Port))
    seq = sequence([1, 2, 3])
    made.begin([seq])
    assert made.propose([seq], [Budget(depth=1)])[0].tokens[1] == fresh_logits([1, 2, 3]).argmax()
    with pytest.raises(CapabilityError, match=r"29.*23"):
        method.build(make_options(method, {"model": str(tmp_path / "other")}), door(Port))


@pytest.mark.parametrize(
    "bad",
    [
        {"width": 0},
        {"beam": -1},
        {"beam": 3, "width": 2},
        {"beam": 3, "replacement": True},
        {"sinks": -1},
        {"sinks": (1 << 24) + 1},
        {"quantization": "int2"},
        {"sample": "maybe"},
        {"confidence_threshold": 1.5},
    ],
)
def test_bad_options(bad):
    with pytest.raises(ConfigError, match=next(iter(bad))):
        DraftModelOptions(**bad)


class HalfPort:
    vocab_size, dtype, device = 61, torch.bfloat16, torch.device("cpu")
    record, exact = None, True


@pytest.fixture(scope="module")
def half_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("half")
    shape = tiny_config(hidden=128, inner=64, layers=1)
    save_model(random_decoder(shape, dtype=torch.bfloat16, exact=False), directory)
    return directory


def built(directory, **options):
    method = find("drafter", "draft_model")
    made = method.build(make_options(method, {"model": str(directory), **options}), door(HalfPort))
    return made, method.describe(made)


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
def test_weights_are_rounded_where_that_pays(half_dir):
    told = {name: built(half_dir, quantization=name)[1] for name in ("auto", "none", "int8", "int4")}
    assert {name: one["variant"] for name, one in told.items()} == {
        "auto": "int8-g32",
        "none": "",
        "int8": "int8-g32",
        "int4": "int4-g32-mixed",
    }
    assert [one["rounded_at_load"] for one in told.values()] == [True, False, True, True]
    assert told["int4"]["pass_bytes"] < told["auto"]["pass_bytes"] < told["none"]["pass_bytes"]
    assert built(half_dir, dtype="float32")[1] == {
        "kernels": "pytorch",
        "variant": "",
        "bits": 32,
        "rounded_at_load": False,
        "pass_bytes": built(half_dir, dtype="float32", quantization="none")[1]["pass_bytes"],
    }


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")
def test_what_is_rounded_already_stays_so(half_dir, tmp_path):
    save_model(quantize_decoder(load_model(half_dir), QuantConfig(bits=8, group_size=0)), tmp_path)
    told = built(tmp_path)[1]
    assert told["variant"] == "int8" and not told["rounded_at_load"]
    with pytest.raises(ConfigError, match="rounded already"):
        built(tmp_path, quantization="int4")
