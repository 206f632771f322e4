"""A decoder on the native kernels against the same decoder in PyTorch, and against itself in other passes."""

import copy

import pytest
import torch
from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.core.cache import KVCache
from outdraft.kernels.library import library
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.guess import guess_with
from outdraft.models.networks.native import NativeDecoder, can_pack
from outdraft.models.networks.network import Network
from outdraft.models.remake.quantize import quantize_decoder
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import CausalContext
from outdraft.nn.linear import LinearMap
from outdraft.nn.quant import QuantConfig
from outdraft.nn.rope import RopeConfig
from outdraft.nn.segment import Segment
from outdraft.options.errors import CapabilityError

pytestmark = pytest.mark.skipif(library() is None, reason="the native kernels are not built here (no C++ compiler)")

ROPE, NEAR = RopeConfig(dim=32), RopeConfig(dim=32, theta=300.0)
SANDWICH = {"norm": "rms32", "post_norm": True, "activation": "gelu_pytorch_tanh", "embedding_scale": 3.0}
BEHIND = {"pre_norm": False, "post_norm": True, "qk_norm": True}
FAMILIES = {
    "gemma2": {**SANDWICH, "windows": (7, None), "score_scale": 0.4, "score_cap": 2.0, "logit_cap": 3.0},
    "gemma3": {**SANDWICH, "windows": (7, None), "ropes": (NEAR, ROPE), "qk_norm": True, "score_scale": 0.4},
    "phi3": {
        "rope": RopeConfig(
            dim=16,
            kind="longrope",
            original_max_len=16,
            factor=2.0,
            long_factors=(3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5),
            short_factors=(1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7),
        )
    },
    "ministral3": {"rope": RopeConfig(dim=32, query_growth=0.4, original_max_len=8)},
    "granite": {"embedding_scale": 3.0, "score_scale": 0.3, "residual_scale": 0.6, "logit_scale": 0.7},
    "olmo2": {"norm": "rms32", **BEHIND, "qk_norm_whole": True},
    "olmo3": {"norm": "rms32", **BEHIND, "qk_norm_whole": True, "windows": (7, None), "ropes": (NEAR, ROPE)},
    "smollm3": {"ropes": (ROPE, None)},
    "glm4": {"post_norm": True, "qkv_bias": True, "rope": RopeConfig(dim=16)},
    "starcoder2": {
        "norm": "layer",
        "gated_mlp": False,
        "activation": "gelu_pytorch_tanh",
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
        "windows": (7, 7),
    },
    "cohere2": {
        "norm": "layer",
        "norm_bias": False,
        "parallel_residual": True,
        "shared_norm": True,
        "logit_scale": 0.7,
        "windows": (7, None),
        "ropes": (ROPE, None),
    },
    "exaone4": {**BEHIND, "windows": (7, None), "ropes": (ROPE, None)},
    "gpt_neox": {
        "norm": "layer",
        "gated_mlp": False,
        "activation": "gelu_new",
        "parallel_residual": True,
        "qkv_bias": True,
        "out_bias": True,
        "mlp_bias": True,
        "rope": RopeConfig(dim=8),
    },
}
SHAPES = {
    **FAMILIES,
    "ministral3 without rope": {"ropes": (RopeConfig(dim=32, query_growth=3.0, original_max_len=8), None)},
    "llama": {},
    "grouped": {"num_heads": 6, "num_kv_heads": 2, "head_dim": 64},
    "one key head": {"num_heads": 5, "num_kv_heads": 1, "head_dim": 96},
    "wide heads": {"num_heads": 2, "num_kv_heads": 2, "head_dim": 128},
    "qwen2": {"qkv_bias": True},
    "qwen3": {"qk_norm": True},
    "mistral": {"windows": (7, None)},
    "partial rotary": {"rope": RopeConfig(dim=16)},
    "odd vocabulary": {"vocab_size": 101},
    "int8": {"quant": QuantConfig(bits=8, group_size=0)},
    "int8 head": {"quant": QuantConfig(bits=8, group_size=0, keep=("layers.*",))},
    "int8 in groups": {"quant": QuantConfig(bits=8, group_size=32, keep=())},
    "mixed": {"quant": QuantConfig(keep=("layers.0.*", "lm_head"), layer_bits=(("*.down", 8),))},
    "int4": {"quant": QuantConfig(bits=4, group_size=32, keep=())},
    "gemma2 int4": {**FAMILIES["gemma2"], "quant": QuantConfig(bits=4, group_size=32, keep=())},
    "cohere2 int8": {**FAMILIES["cohere2"], "quant": QuantConfig(bits=8, group_size=32, keep=())},
}
TWINS = {  # every family on 8 and on 4 bits
    f"{family} on {bits} bits": {**options, "quant": QuantConfig(bits=bits, group_size=32, keep=())}
    for family, options in FAMILIES.items()
    for bits in (8, 4)
}


def make(shape: str) -> Decoder:
    """A random bfloat16 decoder of two layers whose distributions are far from flat."""
    options = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 32, "vocab_size": 128, **(SHAPES | TWINS)[shape]}
    options.setdefault("rope", RopeConfig(dim=options["head_dim"]))
    quant = options.pop("quant", None)
    config = ModelConfig(hidden_size=64, num_layers=2, intermediate_size=96, max_len=256, **options)
    decoder = initialise(Decoder(config), 1, std=0.3).bfloat16().requires_grad_(False).eval()
    generator = torch.Generator().manual_seed(5)
    for name, parameter in decoder.named_parameters():
        if "norm" in name:  # neither 1 nor 0
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype))
    if quant is not None:
        decoder = quantize_decoder(decoder, quant)
        for part in decoder.modules():
            if isinstance(part, LinearMap):
                part.unpack()  # a packed weight cannot be copied
                part.tile = None
    return decoder


STATIC, PAGED = CacheConfig(poison=True), CacheConfig(layout="paged", poison=True)
INT8, PAGED_INT8 = (CacheConfig(layout=layout, dtype="int8", poison=True) for layout in ("static", "paged"))
KINDS = (STATIC, PAGED, INT8, PAGED_INT8)
each_cache = pytest.mark.parametrize("kind", KINDS, ids=lambda c: f"{c.layout}-{c.dtype}")


def half(turn: int) -> pytest.MarkDecorator:
    """A square: every shape meets every cache, half of them in this half and the others in the other."""
    pairs = [(i + j, shape, kind) for i, shape in enumerate(SHAPES) for j, kind in enumerate(KINDS)]
    cases = [pytest.param(s, k, id=f"{s}-{k.layout}-{k.dtype}") for place, s, k in pairs if place % 2 == turn]
    return pytest.mark.parametrize(("shape", "kind"), cases)


def new_cache(decoder: Network, kind: CacheConfig = STATIC, others: int = 0) -> KVCache:
    """An empty cache; `others`: pages of another sequence lie in between, so that tables are no plain order."""
    config = decoder.config
    cache = kind.build(config.num_layers, config.num_kv_heads, config.head_dim, decoder.dtype, "cpu", 256)
    for seq in range(-others, 0):
        cache.add(seq)
        cache.reserve(seq, 16)
    for seq in range(-others, 0, 2):
        cache.free(seq)
    return cache


class Feeder:
    """One sequence, fed pass by pass."""

    def __init__(self, decoder: Network, kind: CacheConfig = STATIC) -> None:
        self.decoder = decoder
        self.cache = new_cache(decoder, kind, others=5)
        self.cache.add(0)

    def feed(self, ids: Tensor, parents: tuple[int, ...] | None = None, keep: list[int] | None = None) -> Tensor:
        """Logits [n, V] of a chain or tree below what is there; keeps the given rows (all)."""
        base, n = self.cache.length(0), len(ids)
        self.cache.reserve(0, n)
        segment = Segment(seq=0, start=0, stop=n, base=base, parents=parents)
        positions = torch.tensor(segment.depths()) + base
        out = self.decoder.run(self.decoder.embed(ids, positions), positions, CachedContext(self.cache, [segment]))
        self.cache.commit(0, list(range(n)) if keep is None else keep)
        self.cache.check()
        return self.decoder.logits(out.hidden)


@pytest.mark.parametrize("shape", FAMILIES)
def test_one_call_from_ids_to_logits_has_the_bits_of_its_parts(shape):
    native = NativeDecoder(make(shape))
    ids = torch.arange(3, 33)
    feeder = Feeder(native)
    expected = feeder.feed(ids, keep=[])
    feeder.cache.reserve(0, len(ids))
    context = CachedContext(feeder.cache, [Segment(seq=0, start=0, stop=len(ids), base=0)])
    _, logits = guess_with(native).feed(ids.tolist(), range(len(ids)), context, range(len(ids)))
    assert torch.equal(logits, expected)


@pytest.mark.parametrize("shape", [*SHAPES, *TWINS])
def test_logits_are_those_of_pytorch(shape):
    """Of rounded weights: of the same numbers in PyTorch, where they are multiplied as floats."""
    decoder = make(shape)
    ids = torch.randint(0, decoder.config.vocab_size, (40,), generator=torch.Generator().manual_seed(2))
    wide = copy.deepcopy(decoder).float()
    expected = wide(ids, torch.arange(40), CausalContext(1, 40))
    rough = decoder(ids, torch.arange(40), CausalContext(1, 40)).float()
    feeder = Feeder(NativeDecoder(decoder))
    got = torch.cat([feeder.feed(ids[:23]), feeder.feed(ids[23:])])
    tolerance = float((rough - expected).abs().mean())  # what bfloat16 in PyTorch is off by
    allowed = tolerance if decoder.config.quant is None else 4 * tolerance  # activations are bytes there
    assert float((got - expected).abs().mean()) < allowed
    assert tolerance < 0.05 * float(expected.abs().mean())


@pytest.mark.parametrize("shape", SHAPES)
def test_no_rows_have_no_logits(shape):
    decoder = make(shape)
    width, vocab = decoder.config.hidden_size, decoder.config.vocab_size
    native = NativeDecoder(decoder)
    for product in (native.logits, native.head):
        assert product(torch.empty(0, width)).shape == (0, vocab)
    none = torch.empty(0, width)
    native.stack.run(none, [], none, none, [], range(2))  # nor has a pass anything to do


@half(0)
def test_a_pass_of_many_rows_has_the_bits_of_one_at_a_time(shape, kind):
    decoder = NativeDecoder(make(shape))
    ids = torch.randint(0, decoder.config.vocab_size, (50,), generator=torch.Generator().manual_seed(3))
    alone, together = Feeder(decoder, kind), Feeder(decoder, kind)
    one_by_one = torch.cat([alone.feed(ids[i : i + 1]) for i in range(50)])
    pieces = [together.feed(part) for part in ids.split((17, 1, 9, 23))]
    assert torch.equal(torch.cat(pieces), one_by_one)


@half(1)
def test_a_tree_has_the_bits_of_its_paths(shape, kind):
    decoder = NativeDecoder(make(shape))
    generator = torch.Generator().manual_seed(4)
    text, nodes = (torch.randint(0, decoder.config.vocab_size, (n,), generator=generator) for n in (21, 9))
    parents = (-1, 0, 0, 1, 2, 2, 3, 5, 6)
    feeder = Feeder(decoder, kind)
    feeder.feed(text)
    tree = feeder.feed(nodes, parents, keep=[0, 2, 5])
    paths = {3: (0, 1, 3), 7: (0, 2, 5, 7), 8: (0, 1, 3, 6, 8), 4: (0, 2, 4)}
    for node, path in paths.items():
        alone = Feeder(decoder, kind)
        alone.feed(text)
        assert torch.equal(alone.feed(nodes[list(path)])[-1], tree[node])
    after = feeder.feed(nodes[7:8])  # the kept path goes on as if it had been decoded plainly
    plain = Feeder(decoder, kind)
    plain.feed(text)
    assert torch.equal(plain.feed(nodes[[0, 2, 5, 7]])[-1], after[0])


@pytest.mark.parametrize("kinds", [(STATIC, PAGED), (INT8, PAGED_INT8)], ids=["bf16", "int8"])
@pytest.mark.parametrize("shape", ["llama", "grouped", "one key head", "wide heads", "mistral"])
def test_pages_have_the_bits_of_one_block(shape, kinds):
    decoder = NativeDecoder(make(shape))
    ids = torch.randint(0, 128, (90,), generator=torch.Generator().manual_seed(6))
    parents = (-1, 0, 0, 1, 2, 2, 3, 5, 6)
    found = []
    for kind in kinds:
        feeder = Feeder(decoder, kind)
        logits = [feeder.feed(part) for part in ids[:80].split((33, 1, 46))]
        logits += [feeder.feed(ids[80:89], parents, keep=[0, 2, 5]), feeder.feed(ids[89:])]
        found.append(torch.cat(logits))
    assert torch.equal(*found)


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_a_head_may_be_shared_by_threads(threads):
    ids = torch.randint(0, 128, (60,), generator=torch.Generator().manual_seed(7))
    parents = (-1, 0, 0, 1, 2, 2, 3, 5, 6)
    found = []
    for count in (1, threads):
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            decoder = NativeDecoder(make("one key head"))
        finally:
            torch.set_num_threads(before)
        feeder = Feeder(decoder)
        found.append(torch.cat([feeder.feed(ids[:50]), feeder.feed(ids[50:51]), feeder.feed(ids[51:], parents)]))
    assert torch.equal(*found)


def test_a_cache_of_bytes_is_that_of_pytorch():
    """The same rows to a unit or two of rounding, and logits as near as PyTorch's own bfloat16 comes."""
    decoder = make("grouped")
    ids = torch.randint(0, 128, (40,), generator=torch.Generator().manual_seed(8))

    def fed(decoder: Network, kind: CacheConfig) -> tuple[Tensor, Feeder]:
        feeder = Feeder(decoder, kind)
        return torch.cat([feeder.feed(ids[:33]), feeder.feed(ids[33:])]).float(), feeder

    wide = copy.deepcopy(decoder).float()
    expected, plain = fed(wide, INT8)
    rough = float((fed(decoder, INT8)[0] - expected).abs().mean())  # what bfloat16 in PyTorch is off by
    changed = float((fed(wide, STATIC)[0] - expected).abs().mean())  # what bytes change
    got, native = fed(NativeDecoder(decoder), INT8)
    assert float((got - expected).abs().mean()) < rough
    assert 0 < changed < 0.05 * float(expected.abs().mean())
    ours, theirs = native.cache.memory(0), plain.cache.memory(0)
    for bytes_, scales in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
        close = (bytes_[0, :2].int() - scales[0, :2].int()).abs()  # the first layer's inputs are the same but for bf16
        assert int(close.max()) <= 2
    assert torch.allclose(ours.key_scales[0, :2], theirs.key_scales[0, :2], rtol=0.02)


def test_a_pass_can_stop_and_resume_at_a_layer():
    decoder = NativeDecoder(make("llama"))
    ids, positions = torch.arange(12), torch.arange(12)

    def context() -> CachedContext:
        feeder = Feeder(decoder)
        feeder.cache.reserve(0, 12)
        return CachedContext(feeder.cache, [Segment(seq=0, start=0, stop=12, base=0)])

    h = decoder.embed(ids, positions)
    whole = decoder.run(h, positions, context(), taps=(0, 1, 2))
    half = decoder.run(h, positions, ctx := context(), stop=1).hidden
    assert torch.equal(whole.taps[0], h)
    assert torch.equal(whole.taps[1], half)
    assert torch.equal(whole.hidden, whole.taps[2])
    assert torch.equal(decoder.run(half, positions, ctx, start=1).hidden, whole.hidden)


@each_cache
def test_sequences_of_a_ragged_batch_do_not_meet(kind):
    decoder = NativeDecoder(make("grouped"))
    cache = new_cache(decoder, kind)
    lengths = (5, 1, 19)
    ids = torch.randint(0, 128, (sum(lengths),), generator=torch.Generator().manual_seed(5))
    segments, start = [], 0
    for seq, n in enumerate(lengths):
        cache.add(seq)
        cache.reserve(seq, n)
        segments.append(Segment(seq=seq, start=start, stop=start + n, base=0))
        start += n
    positions = torch.cat([torch.arange(n) for n in lengths])
    hidden = decoder.run(decoder.embed(ids, positions), positions, CachedContext(cache, segments)).hidden
    together = decoder.logits(hidden)
    alone = torch.cat([Feeder(decoder, kind).feed(part) for part in ids.split(lengths)])
    assert torch.equal(together, alone)


def test_other_shapes_stay_with_pytorch(monkeypatch):
    decoder = make("llama")
    with pytest.raises(CapabilityError, match="float32"):
        NativeDecoder(copy.deepcopy(decoder).float())
    assert can_pack(decoder.config, decoder.dtype, decoder.device)
    monkeypatch.setenv("OUTDRAFT_KERNELS", "off")
    assert not can_pack(decoder.config, decoder.dtype, decoder.device)


@each_cache
def test_a_state_that_is_not_finite_stays_its_own(kind):
    """What one text leaves in the kernels' buffers, another must not meet."""
    decoder = NativeDecoder(make("grouped"))
    ids = torch.arange(5)
    alone = Feeder(decoder, kind).feed(ids)
    sick = Feeder(decoder, kind)
    sick.cache.reserve(0, 40)
    context = CachedContext(sick.cache, [Segment(seq=0, start=0, stop=40, base=0)])
    decoder.run(torch.full((40, 64), float("nan")), torch.arange(40), context)
    assert torch.equal(Feeder(decoder, kind).feed(ids), alone)


@pytest.mark.parametrize("shape", ["gemma2", "gemma2 int4", "int8 head", "int8 in groups", "int4"])
def test_a_state_of_nan_has_logits_of_nan(shape):
    """Neither a cap nor the rounding of activations to bytes may make a number of it."""
    decoder = NativeDecoder(make(shape))
    states = torch.randn(3, 64, generator=torch.Generator().manual_seed(9))
    states[1] = float("nan")
    for logits in (decoder.logits(states), decoder.head(states)):
        assert logits[1].isnan().all()
        assert logits[0].isfinite().all() and logits[2].isfinite().all()


@each_cache
@pytest.mark.parametrize("shape", ["qwen2", "gemma2"])
def test_a_query_of_nan_has_no_mean_of_values(shape, kind):
    """Only the queries are broken here: keys, values and states are numbers."""
    decoder = make(shape)
    broken = decoder.layers[-1].qkv
    (broken.weight if broken.bias is None else broken.bias)[: 4 * 32] = float("nan")
    assert Feeder(NativeDecoder(decoder), kind).feed(torch.arange(5), keep=[]).isnan().all()


@each_cache
@pytest.mark.parametrize("part", [0, 2], ids=["keys", "values"])
def test_one_nan_in_a_row_of_the_cache_is_met_by_all_who_see_it(part, kind):
    """A row in bytes is not rounded to what else stands in it."""
    decoder = make("qwen2")
    decoder.layers[-1].qkv.bias[(4 + part) * 32] = float("nan")  # four heads of queries, two of keys, two of values
    assert Feeder(NativeDecoder(decoder), kind).feed(torch.arange(5), keep=[]).isnan().all()
