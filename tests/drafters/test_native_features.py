"""Networks at feature level on the native kernels: what they say at every step of chains and trees is what the same
weights say through PyTorch in float32, whichever of the entrance's parts a kind has, and however it is rounded."""

import sys
from dataclasses import dataclass, replace

import pytest
import torch
from contracts.native_rows import FEATURES, small
from contracts.test_native_drafters import PROMPTS, NativeSubject, first_guesses
from drafters.drafting import sequence

from outdraft.core.drafter import Seen
from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.drafters.eagle.net import load_eagle
from outdraft.drafters.eagle3.formats import load_eagle3
from outdraft.drafters.mtp.net import load_mtp
from outdraft.drafters.p_eagle import MaskedPairs
from outdraft.drafters.p_eagle.formats import load_p_eagle
from outdraft.drafters.shared.features.last_feature import load_last_feature
from outdraft.drafters.shared.features.network import pack_network
from outdraft.drafters.shared.features.pairs import Pairs
from outdraft.drafters.shared.networks.rounding import grid_of, round_linears
from outdraft.drafters.shared.trees.shapes import Beam
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.engine.runner import Runner
from outdraft.kernels.library import library
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import llama_config
from outdraft.models.networks.native import NativeDecoder
from outdraft.nn.linear import Linear
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built")
LOADERS = {
    "eagle": load_eagle,
    "mtp": load_mtp,
    "eagle1": load_last_feature,
    "hass": load_last_feature,
    "eagle3": lambda directory, port, dtype=None: load_eagle3(directory, port.facts, dtype, lent=port),
    "p_eagle": lambda directory, port, dtype=None: load_p_eagle(directory, port.facts, dtype, lent=port),
}
STEPPED = [row for row in FEATURES if row.drafter != "p_eagle"]  # which guesses in one pass
V, QUIET = 61, 0.05  # states so small that a norm's epsilon tells


@dataclass
class Side:
    """A network and its memory of three texts of other lengths."""

    pairs: Pairs
    seqs: list

    def learn(self, first, stop):
        """What the target said of some rows: the same on both sides."""
        for i, seq in enumerate(self.seqs):
            count = min(stop, len(seq.tokens) - 1) - first
            if count > 0:
                states = states_of(i, self.pairs.net.taps, seq)
                hidden = {tap: rows[first : first + count] for tap, rows in states.items()}
                self.pairs.learn(Seen(seq=seq, start=first, num_committed=count, hidden=hidden))


def states_of(i, taps, seq):
    generator = torch.Generator().manual_seed(i)
    return {tap: QUIET * torch.randn(len(seq.tokens), 64, generator=generator) for tap in taps}


def sides(row, directory, quantization="none", kind=Pairs):
    """The network through PyTorch in float32, and on the kernels."""
    target = small(V)
    model = row.side(target, directory)["model"]
    native = Runner(NativeDecoder(small(V))).port
    exact = small(V).float()
    exact.set_exact(True)
    port, load, grid = Runner(exact).port, LOADERS[row.drafter], grid_of(quantization, auto="none")
    nets = load(directory / model, port, torch.float32), load(directory / model, native)
    for net in nets if grid is not None else ():
        round_linears(net, grid)
    packed = pack_network(nets[1], native.layers.native, grid)
    made = []
    for net, door, kernels in ((nets[0], port, None), (nets[1], native, packed)):
        side = Side(pairs=kind(net, door, native=kernels), seqs=[sequence(p) for p in PROMPTS])
        for seq in side.seqs:
            side.pairs.begin([seq])
        made.append(side)
    return made


def alike(found, wanted, most):
    """The share of what differs in what the logits vary; what one does not know the other does not know."""
    known = wanted.isfinite()
    assert torch.equal(found.isfinite(), known) and found.shape == wanted.shape
    found, wanted = (x.float() * known for x in (found.masked_fill(~known, 0), wanted.masked_fill(~known, 0)))
    assert float((found - wanted).norm() / (wanted - wanted.mean()).norm()) < most


GRIDS = (("int8", 0.03), ("int4", 0.03))  # each row meets one of them


@pytest.mark.parametrize(
    ("row", "quantization", "most"),
    [
        pytest.param(row, *grid, id=f"{row.name}-{grid[0]}")
        for turn, row in enumerate(STEPPED)
        for grid in (("none", 0.01), GRIDS[turn // 2 % 2])
    ],
)
@torch.inference_mode()
def test_every_step_says_what_pytorch_says(row, quantization, most, tmp_path):
    exact, native = sides(row, tmp_path, quantization)
    for first, stop in ((0, 3), (3, 99)):  # the second read continues some texts
        said = []
        for side in (exact, native):
            side.learn(first, stop)
            some = [seq for seq in side.seqs if len(seq.tokens) - 1 > first]
            said.append((some, *side.pairs.read_waiting([seq.id for seq in some])))
        alike(said[1][1], said[0][1], most)
        alike(said[1][2], said[0][2], most)
        for step in (1, 2, 3):  # the same tokens, each side with its own outputs
            tokens = [(7 * step + i) % V for i in range(len(said[0][0]))]
            said = [
                (some, *side.pairs.guess([seq.id for seq in some], tokens, outputs, step))
                for side, (some, outputs, _) in zip((exact, native), said, strict=True)
            ]
            alike(said[1][2], said[0][2], most * (1 + step))  # each stands on what was said before
        for side, (some, *_) in zip((exact, native), said, strict=True):
            for seq in some:
                side.pairs.drop_guess(seq.id)


@pytest.mark.parametrize("row", [row for row in FEATURES if row not in STEPPED], ids=lambda row: row.name)
@pytest.mark.parametrize(("quantization", "most"), [("none", 0.02), ("int8", 0.05)])
@torch.inference_mode()
def test_mask_rows_say_what_pytorch_says(row, quantization, most, tmp_path):
    exact, native = sides(row, tmp_path, quantization, MaskedPairs)
    for first, stop in ((0, 3), (3, 99)):  # nothing of the first pass's mask rows is left
        said = []
        for side in (exact, native):
            side.learn(first, stop)
            some = [seq.id for seq in side.seqs if len(seq.tokens) - 1 > first]
            said.append(side.pairs.block(some, [4, 1, 3][: len(some)]))
        for ours, theirs in zip(*said, strict=True):
            alike(theirs, ours, most)


SCALED = [next(row for row in FEATURES if row.drafter == drafter) for drafter in ("eagle", "mtp", "eagle1")]


@pytest.mark.parametrize("row", SCALED, ids=lambda row: row.name)
@pytest.mark.parametrize(("quantization", "most"), [("none", 0.02), ("int8", 0.05)])
@torch.inference_mode()
def test_scales_and_caps_of_the_target_are_its_networks_too(row, quantization, most, tmp_path, monkeypatch):
    """The embeddings and the head that a network borrows are those of Gemma's and Granite's kind."""

    plain = small

    def scaled(vocab):
        decoder = plain(vocab)
        decoder.config = replace(decoder.config, embedding_scale=3.0, logit_scale=0.5, logit_cap=2.0)
        return decoder

    monkeypatch.setattr(sys.modules[__name__], "small", scaled)
    exact, native = sides(row, tmp_path, quantization)
    said = []
    for side in (exact, native):
        side.learn(0, 99)
        said.append(side.pairs.read_waiting([seq.id for seq in side.seqs]))
    alike(said[1][0], said[0][0], most)
    alike(said[1][1], said[0][1], most)
    assert float(said[0][1].abs().max()) <= 2


@pytest.mark.parametrize("row", FEATURES, ids=lambda row: row.name)
@torch.inference_mode()
def test_every_level_of_a_tree_says_what_pytorch_says(row, tmp_path):
    exact, native = sides(row, tmp_path)
    said = []
    for side in (exact, native):
        side.learn(0, 99)
        outputs, _ = side.pairs.read_waiting([seq.id for seq in side.seqs])
        trees = [Tree(seq, Beam(2, 2), max_depth=4, max_nodes=9) for seq in side.seqs]
        for tree in trees:
            for token in (5, 9):
                tree.add(0, token, -1.0, 0.3)
            tree.expanded, tree.frontier = [0], [1, 2]
        first = side.pairs.branch(trees, outputs.repeat_interleave(2, 0))
        for tree in trees:
            for parent, token in ((1, 4), (1, 8), (2, 4)):
                tree.add(parent, token, -1.0, 0.3)
            tree.expanded, tree.frontier = [0, 1, 2], [3, 5]
        second = side.pairs.branch(trees, first[0])  # of nodes 1 and 2 of each tree
        said.append((first[1], second[1]))
    for found, wanted in zip(said[1], said[0], strict=True):
        alike(found, wanted, 0.02)
    assert float((said[0][1][0] - said[0][1][1]).nan_to_num(0).abs().max()) > 0.1  # siblings are not alike


FEWER = [row for row in FEATURES if "fewer tokens" in row.label]


@pytest.mark.parametrize("row", FEWER, ids=lambda row: row.name)
@torch.inference_mode()
def test_a_chain_keeps_to_the_networks_vocabulary(row, tmp_path):
    for draft in first_guesses(NativeSubject(row, tmp_path), PROMPTS, SamplingParams()):
        assert int(draft.tokens[1:].min()) >= 61 - int(61 * 0.7)


@pytest.mark.parametrize("tied", [True, False])
def test_a_head_that_is_borrowed_is_rounded_as_a_copy(tied, tmp_path):
    """The target's own logits stay as they were; a target of integers lends its head as it is."""
    config = llama_config(
        vocab_size=V,
        hidden_size=64,
        num_layers=3,
        num_heads=2,
        num_kv_heads=1,
        intermediate_size=96,
        max_len=512,
        tie_embeddings=tied,
    )
    decoder = initialise(Decoder(config), 1, std=0.25).bfloat16().requires_grad_(False).eval()
    target = NativeDecoder(decoder)
    head = target.stack.read_head()
    assert head is not None and torch.equal(head, decoder.lm_head.matrix())
    states = torch.randn(3, 64)
    before = target.head(states)
    port = Runner(target).port
    row = next(row for row in FEATURES if row.drafter == "mtp")
    options = make_options(find("drafter", "mtp"), {**row.side(small(V), tmp_path), "quantization": "int4"})
    drafter = find("drafter", "mtp").build(options, port)
    (weights,) = drafter.traits.weights
    assert (weights.kernels, weights.bits, weights.rounded_at_load) == ("native", 4, True)
    assert torch.equal(target.head(states), before)


@pytest.mark.parametrize(("quantization", "most"), [("int8", 0.6), ("int4", 0.4)])
@torch.inference_mode()
def test_rounding_saves_what_a_pass_reads_and_changes_what_is_said(quantization, most, tmp_path):
    row = next(row for row in FEATURES if row.drafter == "mtp")
    whole = sides(row, tmp_path)[1]
    rounded = sides(row, tmp_path, quantization)[1]
    said = []
    for side in (whole, rounded):
        side.learn(0, 99)
        said.append(side.pairs.read_waiting([seq.id for seq in side.seqs])[1])
    assert 0.005 < float((said[0] - said[1]).norm() / said[0].norm()) < 0.3
    port = Runner(NativeDecoder(small(V))).port
    method, model = find("drafter", "mtp"), row.side(small(V), tmp_path)
    sizes = [
        method.build(make_options(method, {**model, "quantization": one}), port).traits.weights[0].pass_bytes
        for one in ("none", quantization)
    ]
    assert sizes[1] < most * sizes[0]


@torch.no_grad()
def test_a_rounded_map_is_nearly_the_map_its_bias_too():
    net = torch.nn.Sequential(Linear(64, 40, True, torch.float32, torch.device("cpu")))
    for parameter in net.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(2))
    wanted = net(x)
    round_linears(net, grid_of("int8", auto="none"))
    assert not isinstance(net[0], Linear)
    torch.testing.assert_close(net(x), wanted, atol=0.3, rtol=0.02)


def test_a_rounding_that_is_not_known_is_an_error():
    with pytest.raises(ConfigError, match="quantization='int3'"):
        make_options(find("drafter", "eagle3"), {"quantization": "int3"})


@pytest.mark.parametrize("turn", range(3))
def test_rounded_networks_draft_as_budgets_say(turn, tmp_path):
    """Each row is rounded in one way."""
    quantization = ("auto", "int8", "int4")[turn]
    for row in FEATURES[turn::3]:
        directory = tmp_path / row.name.replace(" ", "-")
        directory.mkdir()
        subject = NativeSubject(row, directory)
        subject.options = make_options(
            subject.method, {**row.side(subject.decoder, directory), **row.options, "quantization": quantization}
        )
        drafts = first_guesses(subject, PROMPTS, SamplingParams(temperature=0.8), budget=Budget(depth=3))
        assert all(draft.num_nodes > 3 and draft.q is not None for draft in drafts)
