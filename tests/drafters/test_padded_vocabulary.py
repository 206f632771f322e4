"""A pair whose vocabularies were filled up to different sizes drafts: the same texts, the same distribution."""

import json
import shutil
from functools import cache
from itertools import product

import pytest
import torch
from drafters.drafting import sequence
from drafters.test_draft_model import small_decoder
from recording import record_by_tracing
from safetensors.torch import load_file, save_file

from outdraft import LLM, SamplingParams
from outdraft.core.draft import host_tree
from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.drafters.draft_model import DraftModelDrafter, DraftModelOptions
from outdraft.drafters.draft_model.static import StaticDraftModel
from outdraft.drafters.shared.networks.own_model import DraftModel
from outdraft.engine.loop import Engine
from outdraft.kernels.library import library
from outdraft.models.networks.fitted import FittedNetwork
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.target.open_network import load_network
from outdraft.nn.context import CausalContext
from outdraft.options.errors import CapabilityError
from outdraft.sampling.warp import warp_nodes
from outdraft.testing.statistics import judge_counts
from outdraft.testing.subject import run
from outdraft.weights.hub import resolve
from tests.helpers.fakes import AuditedTarget, ConstantPolicy, TableTarget

MORE = 64
PROMPTS = ["It was late in the evening when the letter came.", "def add(a, b):"]
GREEDY, SEEDED = SamplingParams(max_tokens=14), SamplingParams(max_tokens=14, temperature=0.8, seed=7)
ASKED = PROMPTS * 2, [GREEDY, GREEDY, SEEDED, SEEDED]
DRAFTERS = {
    "chain": {"name": "draft_model"},
    "tree": {"name": "draft_model", "width": 3},
    "levels": {"name": "draft_model", "expansion": (2, 2, 1)},
    "beam": {"name": "draft_model", "beam": 3},
    "twice the same": {"name": "draft_model", "width": 2, "replacement": True},
    "sequoia": {"name": "sequoia"},
    "specexec": {"name": "specexec"},
    "edgellm": {"name": "edgellm"},
}


def pad(name, place, rows, *, strength, tokenizer=True):
    """A zoo model whose vocabulary has so many rows more, copies of its first."""
    shutil.copytree(resolve(name), place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] + rows}))
    weights = load_file(place / "model.safetensors")
    for one, tensor in weights.items():
        if tensor.shape[0] == config["vocab_size"]:
            weights[one] = torch.cat([tensor, strength * tensor[:rows]])
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    if not tokenizer:
        (place / "tokenizer.json").unlink()
    return str(place)


@pytest.fixture(scope="module")
def padded(tmp_path_factory):
    """The draft is filled up beyond the target with rows that it would always guess, were they tokens; the target
    beyond the draft, with rows that are drawn now and then."""
    home = tmp_path_factory.mktemp("padded")
    return {
        "draft": pad("zoo:draft", home / "draft", MORE, strength=4),
        "target": pad("zoo:target", home / "target", MORE, strength=0.9),
    }


def pair(padded, larger):
    return (padded["target"], "zoo:draft") if larger == "target" else ("zoo:target", padded["draft"])


@pytest.fixture(scope="module")
def plain(padded):
    """The target that is larger or smaller than its draft, of a type, and what it writes: made once each."""

    @cache
    def made(larger, dtype):
        llm = LLM(pair(padded, larger)[0], drafter="none", dtype=dtype)
        return llm, [one.token_ids for one in llm.generate(*ASKED)]

    return made


@pytest.mark.parametrize(
    ("kind", "larger", "dtype"),  # of the other shapes each meets one larger side
    [
        *((kind, ("draft", "target")[turn % 2], "bfloat16") for turn, kind in enumerate(DRAFTERS)),
        ("chain", "target", "bfloat16"),
        ("tree", "draft", "bfloat16"),
        ("chain", "target", "float32"),
        ("tree", "draft", "float32"),
    ],
)
def test_the_text_is_plain_decodings(padded, plain, kind, larger, dtype):
    llm, wanted = plain(larger, dtype)
    words = {**DRAFTERS[kind], "model": pair(padded, larger)[1]}
    found = llm.with_drafter(words, num_speculative_tokens=4).generate(*ASKED)
    assert [one.token_ids for one in found] == wanted
    for some in (found[:2], found[2:]):  # greedy, seeded
        accepted = sum(one.stats.num_accepted_tokens for one in some)
        assert accepted > 3, (kind, accepted)


@pytest.mark.parametrize("own", [4, 9])
@pytest.mark.parametrize("shape", [{}, {"width": 3}, {"beam": 3}, {"width": 2, "replacement": True}], ids=str)
def test_rows_without_a_token_are_impossible_and_q_is_what_was_drawn_from(own, shape):
    """Nodes are drawn from a softmax over the tokens that both have, for ids that only one has read too."""
    network, size = small_decoder(vocab_size=own), 6
    made = DraftModelDrafter(DraftModelOptions(**shape), DraftModel(FittedNetwork(network, size)))
    both = min(own, size)
    for seed in range(40):
        seq = sequence([1, 5, 2], seed=seed, temperature=1.0)
        made.begin([seq])
        draft = made.propose([seq], [Budget(depth=3)])[0]
        tree = host_tree(draft)
        assert draft.q.shape[1] == size and max(tree.tokens[1:]) < both
        for node, children in enumerate(tree.children):
            path = [min(token, own - 1) for token in [*seq.tokens, *(tree.tokens[v] for v in tree.path(node))]]
            ids = torch.tensor(path)
            logits = network(ids, torch.arange(len(ids)), CausalContext(1, len(ids)))[-1, :both]
            if children:
                assert torch.allclose(draft.q[node, :both], torch.softmax(logits, -1), atol=1e-9)
                assert not draft.q[node, both:].any()
        made.end([seq])


VOCAB, LENGTH, TEXTS = 5, 3, 250


def sampled(rule, width, own, *, flat=False):
    """Texts of a target of 5 tokens, drafted by a model of `own`; the verdict on their distribution.

    flat: the fault that a q over all rows would be, where only some of them can be drawn.
    """
    target = TableTarget(vocab_size=VOCAB, seed=1)
    network = FittedNetwork(small_decoder(vocab_size=own), VOCAB)
    made = DraftModelDrafter(DraftModelOptions(width=width), DraftModel(network))
    if flat:
        honest = made.propose
        made.propose = lambda seqs, budgets: [spread(draft) for draft in honest(seqs, budgets)]
    verifier = find("verifier", rule)
    parts = Parts(
        target=target if flat else AuditedTarget(target),
        drafter=made,
        verifier=verifier.build(make_options(verifier, {})),
        policy=ConstantPolicy(Budget(depth=2, nodes=6)),
    )
    requests = [
        Request(prompt_token_ids=(1, 2), params=SamplingParams(max_tokens=LENGTH, temperature=1.0, seed=i))
        for i in range(3 * TEXTS)
    ]
    contexts = [c for n in range(LENGTH) for c in product(range(VOCAB), repeat=n)]
    index = {context: i for i, context in enumerate(contexts)}
    counts, accepted = torch.zeros(len(contexts), VOCAB, dtype=torch.float64), 0
    for outcome in run(Engine(parts), requests):
        accepted += outcome.stats.num_accepted_tokens
        for n, token in enumerate(outcome.seq.output):
            counts[index[tuple(outcome.seq.output[:n])], token] += 1
    seq = sequence([1, 2], temperature=1.0)
    rows = [warp_nodes(seq, target.next_logits([1, 2, *context])[None], [[]])[0].double() for context in contexts]
    return judge_counts(counts, torch.stack(rows), 0), accepted


def spread(draft):
    """The same draft with a q in which each row without a token has as much as the likeliest one."""
    if draft.q is not None:
        q = torch.where(draft.q > 0, draft.q, draft.q.amax(-1, keepdim=True))
        object.__setattr__(draft, "q", q / q.sum(-1, keepdim=True).clamp(min=1e-9))
    return draft


@pytest.mark.parametrize(
    ("rule", "width", "own"), [("rejection", 1, 3), ("block", 1, 8), ("multi_draft", 3, 3), ("traversal", 3, 8)]
)
def test_the_sampled_distribution_is_the_targets(rule, width, own):
    verdict, accepted = sampled(rule, width, own)
    assert verdict.passes, verdict
    assert accepted > TEXTS / 4


@pytest.mark.parametrize(("rule", "width"), [("rejection", 1), ("block", 1)])
def test_a_q_over_rows_that_were_not_drawn_from_is_caught(rule, width):
    assert not sampled(rule, width, 3, flat=True)[0].passes


@pytest.mark.skipif(library() is None, reason="the native kernels are not built here")
@pytest.mark.parametrize("change", [-8, 8])
def test_the_kernels_and_pytorch_see_the_same_rows(change):
    """A pass's logits: cut, or filled up with negative infinity, in kernels and PyTorch."""
    network = load_network(resolve("zoo:draft"), "bfloat16")
    assert isinstance(network, NativeDecoder)
    size = network.config.vocab_size - change
    fitted = FittedNetwork(network, size)
    model = DraftModel(fitted)
    texts = [sequence([5, 6, 7, max(size, network.config.vocab_size) - 1])]
    for text in texts:
        model.add(text.id)
    if change > 0:  # an id of the draft's own padding is no id of the target
        texts[0].tokens[-1] = size - 1
    native = model.read(texts)
    own = DraftModel(fitted)
    own._network = type(own._network)(
        lambda ids, at, context, skip: fitted.run(fitted.embed(ids, at), at, context, skip=skip).hidden,
        fitted.logits,
        None,
        fitted.device,
        fitted.dtype,
    )
    own.add(texts[0].id)
    assert native.shape == (1, size)
    assert torch.equal(native, own.read(texts))
    assert bool(torch.isneginf(native[0, network.config.vocab_size :]).all())


@pytest.mark.parametrize("own", [15, 31])
def test_a_recorded_chain_guesses_the_same(own):
    network = small_decoder(vocab_size=own)
    network = network.float()
    network.set_exact(False)
    guesses = []
    for make in (DraftModel, lambda fitted: StaticDraftModel(fitted, record_by_tracing)):
        made = DraftModelDrafter(DraftModelOptions(), make(FittedNetwork(network, 23)))
        seq = sequence([1, 22, 2])
        made.begin([seq])
        guesses.append(made.propose([seq], [Budget(depth=4)])[0].tokens.tolist())
    assert guesses[0] == guesses[1] and max(guesses[0][1:]) < min(own, 23)


def test_another_tokenizer_is_refused_by_the_id_that_differs(padded, tmp_path):
    place = tmp_path / "other"
    shutil.copytree(padded["draft"], place)
    told = json.loads((place / "tokenizer.json").read_text())
    vocab = told["model"]["vocab"]
    first, second = (next(name for name, i in vocab.items() if i == n) for n in (300, 301))
    vocab[first], vocab[second] = 301, 300
    (place / "tokenizer.json").write_text(json.dumps(told))
    with pytest.raises(CapabilityError, match=r"id 300 stands for another token.*vocab_map"):
        LLM("zoo:target", draft_model=str(place))


def test_a_draft_without_a_tokenizer_is_refused_by_name(tmp_path):
    place = pad("zoo:draft", tmp_path / "bare", MORE, strength=1, tokenizer=False)
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "bare" / name).unlink(missing_ok=True)
    with pytest.raises(CapabilityError, match=r"the draft model has no tokenizer"):
        LLM("zoo:target", draft_model=place)
