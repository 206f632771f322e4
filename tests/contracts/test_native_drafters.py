"""Drafters that have a native form, on a target that the kernels hold: what depends on the kernels, again.

The tiny targets of the suite are float64 and stay with PyTorch, so the native chains and passes are proven here.
Guesses are compared with those of the same networks through PyTorch, too.
"""

from collections import defaultdict
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import pytest
import torch
from contracts.at_once import bits, crowds, reuse, texts
from contracts.sides import randomise

from outdraft.cache.static import StaticCache
from outdraft.core.draft import chain
from outdraft.core.drafter import Seen
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.drafters.dflash.kind import KIND as DFLASH
from outdraft.drafters.dflash2.kind import KIND as DFLASH2
from outdraft.drafters.dflash2.kind import Dflash2Sizes
from outdraft.drafters.dspark.kind import KIND as DSPARK
from outdraft.drafters.dspark.kind import DsparkSizes
from outdraft.drafters.eagle.net import EagleConfig, EagleNet, save_eagle
from outdraft.drafters.eagle3.formats import save_eagle3
from outdraft.drafters.early_exit.net import EarlyExitConfig, EarlyExitHead, save_exit_head
from outdraft.drafters.mtp.net import MtpConfig, MtpNet, save_mtp
from outdraft.drafters.p_eagle.formats import save_p_eagle
from outdraft.drafters.shared.blocks.config import BlockConfig
from outdraft.drafters.shared.features.fused.config import FusedConfig
from outdraft.drafters.shared.features.fused.net import FusedNet
from outdraft.drafters.shared.features.last_feature import LastFeatureConfig, LastFeatureNet, save_last_feature
from outdraft.drafters.shared.features.learn import like_target
from outdraft.engine.runner import Runner
from outdraft.kernels.library import library
from outdraft.kernels.threads import torch_threads
from outdraft.models.files.load import save_model
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import llama_config
from outdraft.models.networks.native import NativeDecoder
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment
from outdraft.options.params import SamplingParams
from outdraft.testing.contract import sampled_distribution_is_the_targets
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")


def small(vocab: int, *, seed: int = 1) -> Decoder:
    config = llama_config(
        vocab_size=vocab, hidden_size=64, num_layers=3, num_heads=2, num_kv_heads=1, intermediate_size=96, max_len=512
    )
    return initialise(Decoder(config), seed, std=0.25).bfloat16().requires_grad_(False).eval()


@cache
def wide(vocab: int) -> Decoder:
    """The same through PyTorch in float32."""
    decoder = small(vocab).float()
    decoder.set_exact(True)
    return decoder


def twin(target, directory: Path):
    """The target but for a little noise."""
    other = small(target.config.vocab_size)
    generator = torch.Generator().manual_seed(3)
    for weight in other.parameters():
        weight += (torch.randn(weight.shape, generator=generator) * 0.1 * weight.float().std()).bfloat16()
    save_model(other, directory / "twin")
    return {"model": str(directory / "twin")}


def exit_head(target, directory: Path):
    head = EarlyExitHead(EarlyExitConfig(exit_layer=2, hidden_size=64, inner_size=96), torch.bfloat16)
    randomise(head, seed=7)
    save_exit_head(head, directory / "exit")
    return {"model": str(directory / "exit")}


def eagle_net(target, directory: Path):
    config = EagleConfig(
        taps=(0, 2),
        hidden_size=64,
        vocab_size=target.config.vocab_size,
        num_heads=2,
        num_kv_heads=1,
        head_dim=32,
        intermediate_size=96,
        max_len=512,
    )
    net = EagleNet(config, small(target.config.vocab_size), torch.bfloat16)
    randomise(net, seed=8)
    save_eagle(net, directory / "eagle")
    return {"model": str(directory / "eagle")}


def last_feature_net(target, directory: Path, *, bias=True, own_embedding=False):
    """EAGLE-1's, of two layers, with another norm's epsilon than the target's."""
    layers = replace(like_target(target.config, num_layers=2), norm_eps=1e-3)
    config = LastFeatureConfig(layers=layers, tap=3, bias=bias, own_embedding=own_embedding)
    net = LastFeatureNet(config, small(target.config.vocab_size), torch.bfloat16)
    randomise(net, seed=11)
    save_last_feature(net, directory / "last")
    return {"model": str(directory / "last")}


def mtp_net(target, directory: Path):
    layers = replace(like_target(target.config, num_layers=2, qk_norm=True), norm_eps=1e-3)
    net = MtpNet(MtpConfig(layers=layers, tap=3), small(target.config.vocab_size), torch.bfloat16)
    randomise(net, seed=12)
    save_mtp(net, directory / "mtp")
    return {"model": str(directory / "mtp")}


def eagle3_net(target, directory: Path, *, share=1.0, num_layers=1, width=64, taps=(0, 2), **flags):
    """EAGLE-3's in the published layout. `share`: of the target's tokens that it knows. `width`: of its own."""
    size = max(2, int(target.config.vocab_size * share))
    layers = replace(like_target(target.config, num_layers=num_layers), hidden_size=width, norm_eps=1e-3)
    config = FusedConfig(
        layers=layers, taps=taps, draft_vocab_size=size, target_hidden_size=64, own_embedding=width != 64, **flags
    )
    vocab = None if share == 1 else torch.arange(target.config.vocab_size)[-size:]
    net = FusedNet(config, torch.bfloat16, torch.device("cpu"), vocab)
    randomise(net, seed=13)
    save_eagle3(net, directory / "eagle3")
    return {"model": str(directory / "eagle3")}


def published(**flags):
    return partial(eagle3_net, **flags)


def p_eagle_net(target, directory: Path, *, num_layers=1, own_embedding=False, **flags):
    layers = replace(like_target(target.config, num_layers=num_layers), norm_eps=1e-3)
    config = FusedConfig(
        layers=layers,
        taps=(0, 2),
        draft_vocab_size=target.config.vocab_size,
        target_hidden_size=64,
        own_embedding=own_embedding,
        mask_token_id=3,
        num_depths=4,
        **flags,
    )
    net = FusedNet(config, torch.bfloat16, torch.device("cpu"))
    randomise(net, seed=14)
    save_p_eagle(net, directory / "p_eagle")
    return {"model": str(directory / "p_eagle")}


def block_net(kind, target, directory: Path, *, own=None, windows=(), vocab=None, **flags):
    """A block network; where its files lie, its kind says."""
    config = target.config
    layers = replace(like_target(config, num_layers=2, qk_norm=True), norm_eps=1e-3, windows=windows)
    block = BlockConfig(
        layers=layers,
        taps=(0, 2),
        target_hidden_size=64,
        block_size=5,
        mask_token_id=3,
        draft_vocab_size=vocab or config.vocab_size,
        **flags,
    )
    ids = None if vocab is None else torch.arange(config.vocab_size)[-vocab:]
    net = kind.net(block, own, torch.bfloat16, torch.device("cpu"), ids)
    randomise(net, seed=15)
    kind.save(net, directory / "block")
    return {"model": str(directory / "block")}


CHAIN = {"width": 1, "sample": "match", "quantization": "none"}
TREE = {"width": 2, "sample": "match", "quantization": "none"}
FEATURES = [
    DrafterRow(drafter="eagle", label="chain", side=eagle_net, options=CHAIN),
    DrafterRow(drafter="eagle", label="tree", side=eagle_net, options=TREE),
    DrafterRow(drafter="mtp", label="chain", side=mtp_net, options=CHAIN),
    DrafterRow(drafter="mtp", label="tree", side=mtp_net, options=TREE),
    DrafterRow(drafter="eagle1", label="chain", side=last_feature_net, options=CHAIN),
    DrafterRow(drafter="eagle1", label="tree", side=partial(last_feature_net, own_embedding=True), options=TREE),
    DrafterRow(drafter="hass", label="chain", side=partial(last_feature_net, bias=False), options=CHAIN),
    DrafterRow(drafter="eagle3", label="chain", side=published(), options=CHAIN),
    DrafterRow(drafter="eagle3", label="tree", side=published(num_layers=2, norm_before_residual=True), options=TREE),
    DrafterRow(
        drafter="eagle3",
        label="chain of 3.1, fewer tokens",
        side=published(share=0.7, fc_norm=True, norm_output=True),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="eagle3",
        label="tree of another width, one tap norm",
        side=published(width=96, norm_before_fc=True, norm_output=True),
        options=TREE,
    ),
    DrafterRow(drafter="p_eagle", label="chain", side=p_eagle_net, options=CHAIN),
    DrafterRow(
        drafter="p_eagle",
        label="tree",
        side=partial(p_eagle_net, num_layers=2, own_embedding=True, fc_norm=True),
        options=TREE,
    ),
    DrafterRow(drafter="dflash", label="chain", side=partial(block_net, DFLASH), options=CHAIN),
    DrafterRow(
        drafter="dflash",
        label="tree that sees a window, own embeddings and head, fewer tokens",
        side=partial(block_net, DFLASH, windows=(3, 3), own_embedding=True, own_head=True, vocab=40),
        options=TREE,
    ),
    DrafterRow(
        drafter="dflash",
        label="chain of causal slots, fewer tokens of the target's head",
        side=partial(block_net, DFLASH, causal=True, vocab=40),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="dflash",
        label="chain on bytes",
        side=partial(block_net, DFLASH, own_head=True),
        options={**CHAIN, "quantization": "int8"},
    ),
    DrafterRow(
        drafter="dflash",
        label="chain of a mask of its own",
        side=partial(block_net, DFLASH, own_mask=True),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="dflash2",
        label="chain",
        side=partial(block_net, DFLASH2, own=Dflash2Sizes(selector_rank=32, selector_top_k=8)),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="dflash2",
        label="tree, fewer tokens",
        side=partial(block_net, DFLASH2, own=Dflash2Sizes(selector_rank=32, selector_top_k=8), vocab=40),
        options=TREE,
    ),
    DrafterRow(
        drafter="dspark",
        label="chain",
        side=partial(block_net, DSPARK, own=DsparkSizes(rank=32), from_anchor=True),
        options=CHAIN,
    ),
    DrafterRow(
        drafter="dspark",
        label="tree of a recurrent head, own head",
        side=partial(block_net, DSPARK, own=DsparkSizes(head="rnn", rank=32), own_head=True, vocab=40),
        options=TREE,
    ),
    DrafterRow(drafter="eagle3", label="tree under the target's head", side=published(own_head=False), options=TREE),
    DrafterRow(
        drafter="eagle3",
        label="chain on one state under the target's head, fewer tokens",
        side=published(own_head=False, one_state=True, taps=(3,), share=0.7),
        options=CHAIN,
    ),
]
ROWS = [
    DrafterRow(drafter="draft_model", side=twin, options={"quantization": "none"}),
    DrafterRow(drafter="early_exit", side=exit_head),
    DrafterRow(drafter="early_exit", label="plain", options={"exit_layer": 2}),
    DrafterRow(drafter="draft_verify", options={"skip_attention": (1,), "skip_mlp": (2,)}),
    DrafterRow(drafter="magicdec", options={"select": "snapkv", "budget": 6, "observe": 3, "refresh": 4}),
    *FEATURES,
]
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
    return row not in FEATURES or check in (texts, bits, (crowds, reuse)[turn // 2 % 2])


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
