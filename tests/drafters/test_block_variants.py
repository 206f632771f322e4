"""Sinks, scaled values and norms of 1 + w in block networks of others: their files, and what is computed of them.

The reference is a formula in float64 over the stored tensors by their published names, one slot after the other. Facts
from SGLang 0.5.23 (https://github.com/sgl-project/sglang): a sink is in the softmax's sum alone and is not scaled,
values of contexts and blocks are scaled alike, and all norms are of 1 + w, that of the contexts among them.
"""

import json

import pytest
import torch
from drafters.block_gguf import write_blocks
from drafters.test_block_formats import read, same
from drafters.test_less_of_a_block import guesses

from outdraft.cache.static import StaticCache
from outdraft.core.learner_registry import find_learner
from outdraft.core.policy import Budget
from outdraft.drafters.shared.blocks.sees import CachedBlocks, Document, PackedBlocks
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ModelLoadError
from outdraft.testing.tiny import random_decoder, tiny_config
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.weights.safetensors import read_tensors, save_tensors

V, D, H, HKV, HD, TURNED, INNER, SIZE, SCALE, WINDOW = 61, 32, 4, 2, 8, 4, 48, 4, 0.612, 3
TOP = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "vocab_size": V,
    "hidden_size": D,
    "num_hidden_layers": 2,
    "num_attention_heads": H,
    "num_key_value_heads": HKV,
    "head_dim": HD,
    "v_head_dim": HD,
    "intermediate_size": INNER,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
    "partial_rotary_factor": TURNED / HD,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": WINDOW,
    "use_sliding_window": True,
    "is_causal": False,
    "num_target_layers": 6,
}
NESTED = {"block_size": SIZE, "mask_token_id": 7, "target_layer_ids": [0, 2]}
MIMO = {"attention_sink_bias": True, "attention_value_scale": SCALE}
GEMMA = {"input_embedding_scale": D**0.5, "final_logit_softcapping": 3.0}
SHAPES = {"self_attn.q_proj.weight": (H * HD, D), "self_attn.o_proj.weight": (D, H * HD)}
SHAPES |= {f"self_attn.{part}_proj.weight": (HKV * HD, D) for part in "kv"}
SHAPES |= {f"self_attn.{part}_norm.weight": (HD,) for part in "qk"}
SHAPES |= {"mlp.gate_proj.weight": (INNER, D), "mlp.up_proj.weight": (INNER, D), "mlp.down_proj.weight": (D, INNER)}
SHAPES |= {"input_layernorm.weight": (D,), "post_attention_layernorm.weight": (D,)}
SINK = "self_attn.attention_sink_bias"
FAULTS = ("no sinks", "values scaled twice", "contexts not scaled", "norms of w", "norm of contexts of w")


@pytest.fixture(scope="module")
def target():
    made = random_decoder(tiny_config(layers=6), dtype=torch.float32)
    made.set_exact(True)
    return made


def directory(place, *, dtype=torch.float32, top=None, nested=None, sinks=True):
    """A draft as its publisher's files are, with all three."""
    shapes = {"fc.weight": (D, 2 * D), "hidden_norm.weight": (D,), "norm.weight": (D,)}
    more = {SINK: (H,)} if sinks else {}
    shapes |= {f"layers.{i}.{name}": shape for i in range(2) for name, shape in (SHAPES | more).items()}
    drawn, tensors = torch.Generator().manual_seed(4), {}
    for name, shape in shapes.items():
        noise = torch.randn(shape, generator=drawn, dtype=torch.float64)
        wide = 1.5 if name.endswith(SINK) else 0.4 if len(shape) == 1 else 2 * shape[-1] ** -0.5
        tensors[name] = (wide * noise).to(dtype)
    place.mkdir()
    save_tensors(tensors, place / "model.safetensors")
    keys = {**TOP, "use_gemma_norm": True, **(top or {})}
    told = keys | {"dflash_config": {**NESTED, **MIMO, **GEMMA, **(nested or {})}}
    (place / "config.json").write_text(json.dumps(told))
    return place


def by_hand(place, embedding, head, states, anchor, token, fault=None):
    """The logits of a block's slots [b, V] at position `anchor`; states [T, 2 D]: what was said of committed rows."""
    said = {name: one.double() for name, one in read_tensors(place / "model.safetensors").items()}

    def normed(x, name):
        plain = fault == "norms of w" or (fault == "norm of contexts of w" and name == "hidden_norm")
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * ((0 if plain else 1) + said[f"{name}.weight"])

    def turned(x, position):
        angle = position * 100.0 ** (-torch.arange(0, TURNED, 2, dtype=torch.float64) / TURNED)
        a, b = x[: TURNED // 2], x[TURNED // 2 : TURNED]
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), x[TURNED:]))

    context = normed(states.double() @ said["fc.weight"].T, "hidden_norm")
    slots = embedding.double()[[token, 7, 7, 7]] * D**0.5
    for i in range(2):
        at = f"layers.{i}."
        x = normed(slots, f"{at}input_layernorm")
        first = max(0, anchor - WINDOW) if i == 0 else 0
        rows = [(p, context[p], True) for p in range(first, anchor)]
        rows += [(anchor + j, x[j], False) for j in range(SIZE)]
        mixed = torch.zeros(SIZE, H, HD, dtype=torch.float64)
        for h in range(H):
            own = slice(h * HD, (h + 1) * HD)
            lent = slice(h // (H // HKV) * HD, (h // (H // HKV) + 1) * HD)
            for j in range(SIZE):
                q = normed(said[f"{at}self_attn.q_proj.weight"][own] @ x[j], f"{at}self_attn.q_norm")
                q, scores, values = turned(q, anchor + j), [], []
                for position, row, is_far in rows:
                    k = normed(said[f"{at}self_attn.k_proj.weight"][lent] @ row, f"{at}self_attn.k_norm")
                    scores.append(q @ turned(k, position) * HD**-0.5)
                    times = {"values scaled twice": 2, "contexts not scaled": int(not is_far)}.get(fault, 1)
                    values.append(said[f"{at}self_attn.v_proj.weight"][lent] @ row * SCALE**times)
                powers = torch.stack(scores).exp()
                rest = 0 if fault == "no sinks" else said[at + SINK][h].exp()
                mixed[j, h] = powers / (powers.sum() + rest) @ torch.stack(values)
        slots = slots + mixed.flatten(1) @ said[f"{at}self_attn.o_proj.weight"].T
        x = normed(slots, f"{at}post_attention_layernorm")
        gate, up = (x @ said[f"{at}mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        slots = slots + (gate * gate.sigmoid() * up) @ said[f"{at}mlp.down_proj.weight"].T
    return 3 * torch.tanh(normed(slots, "norm") @ head.double().T / 3)


@torch.no_grad()
def test_the_passes_that_draft_and_train_are_the_formula_and_each_others(target, tmp_path):
    place = directory(tmp_path / "d")
    net, drawn = read("dflash", place, target), torch.Generator().manual_seed(5)
    states, anchors, tokens = torch.randn(9, 2 * D, generator=drawn), torch.tensor([1, 5, 8]), torch.tensor([3, 9, 20])
    keys = net.keys(net.fuse(states.chunk(2, -1)), torch.arange(9))
    rows = net.embed(tokens, anchors, target.embed)
    document = Document(rows=slice(0, 9), blocks=slice(0, 3), anchors=anchors)
    packed = net.run(rows, anchors, PackedBlocks(keys, [document], SIZE, net.config.sight))
    cache = StaticCache(2, HKV, HD, torch.float32, "cpu", 16)
    for seq, anchor in enumerate(anchors.tolist()):
        cache.add(seq)
        cache.reserve(seq, anchor)
        for layer, (k, v) in enumerate(keys):
            cache.write(seq, layer, 0, k[:anchor], v[:anchor])
        cache.commit(seq, range(anchor))
    cached = net.run(rows, anchors, CachedBlocks(cache, [0, 1, 2], SIZE, net.config.sight))
    torch.testing.assert_close(packed, cached, atol=2e-5, rtol=1e-5)
    ours = net.scores(cached, target.head).view(3, SIZE, V)

    def far(fault=None):
        whole = zip(anchors.tolist(), tokens.tolist(), strict=True)
        made = [by_hand(place, target.embedding, target.head_matrix(), states, a, t, fault) for a, t in whole]
        return float((torch.stack(made) - ours).abs().max())

    assert far() < 2e-5
    for fault in FAULTS:
        assert far(fault) > 0.05, fault


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_layouts_keep_every_bit(dtype, target, tmp_path):
    """In the type of the files: norms are float32 in memory, and are written as they were stored."""
    place = directory(tmp_path / "d", dtype=dtype)
    formats = find_learner("dflash").formats
    net = formats[1].read(place, target, None)
    assert (net.config.sinks, net.config.value_scale, net.dtype) == (True, SCALE, dtype)
    assert net.norm.weight.dtype == torch.float32
    stored = read_tensors(place / "model.safetensors")
    for one in formats[:2]:
        one.write(net, target, "t", tmp_path / one.name)
        assert [other.name for other in formats if other.matches(tmp_path / one.name)] == [one.name]
        back = one.read(tmp_path / one.name, target, None)
        assert same(net, back) and back.config.layers == net.config.layers and back.dtype == dtype
        again = read_tensors(tmp_path / one.name / "model.safetensors")
        norms = {name for name in stored if "norm" in name}
        assert again.keys() == stored.keys()
        assert all(torch.equal(again[name], stored[name]) for name in stored.keys() - norms)
        for name in norms:  # float32 rounds 1 + w; what has 16 bits comes back whole
            near = 1.2e-7 if dtype == torch.float32 else 0
            torch.testing.assert_close(again[name], stored[name], rtol=0, atol=near)
    told = json.loads((tmp_path / "z-lab/config.json").read_text())
    assert told["use_gemma_norm"] is True and MIMO.items() <= told["dflash_config"].items()


def test_a_gguf_file_says_sinks_by_its_tensors(target, tmp_path):
    """Its norms are multiplied as they are stored: llama.cpp's converter has none of 1 + w."""
    place = directory(tmp_path / "d", top={"use_gemma_norm": False}, nested={"attention_value_scale": 0.5})
    whole = read("dflash", place, target)
    find_learner("dflash").formats[1].write(whole, target, "t", tmp_path / "z")
    metadata = {"attention__value_scale": 0.5, "rope__dimension_count": TURNED}
    file = read("dflash", write_blocks(tmp_path / "z", tmp_path / "x.gguf", **metadata), target)
    assert file.config.sinks and file.config.value_scale == 0.5
    assert all(torch.equal(one, whole.get_parameter(name)) for name, one in file.named_parameters())


CONTRADICTIONS = [
    (
        {},
        {"attention_sink_bias": False},
        True,
        "attention_sink_bias=False of config.json, and its files hold attention",
    ),
    ({}, {"attention_sink_bias": None}, True, "attention_sink_bias=None of config.json, and its files hold attention"),
    ({}, {}, False, "attention_sink_bias=True of config.json, and its files hold no attention sinks"),
    ({"add_swa_attention_sink_bias": False}, {}, True, "add_swa_attention_sink_bias=False of config.json"),
    ({}, {"attention_sink_bias": "yes"}, True, "attention_sink_bias='yes' is not supported"),
    ({}, {"attention_value_scale": True}, True, "attention_value_scale=True is not supported"),
    ({"use_gemma_norm": 1}, {}, True, "use_gemma_norm=1 is not supported"),
    ({"use_gemma_norm": False}, {"use_gemma_norm": True}, True, "use_gemma_norm of config.json is False, in dflash"),
]


@pytest.mark.parametrize(("top", "nested", "sinks", "words"), CONTRADICTIONS)
def test_keys_and_tensors_that_contradict_each_other_are_one_error(top, nested, sinks, words, target, tmp_path):
    with pytest.raises(ModelLoadError) as raised:
        read("dflash", directory(tmp_path / "d", top=top, nested=nested, sinks=sinks), target)
    assert words in str(raised.value)


def test_mimos_other_key_says_sinks_too(target, tmp_path):
    top, nested = {"add_swa_attention_sink_bias": True}, {"attention_sink_bias": None}
    assert read("dflash", directory(tmp_path / "d", top=top, nested=nested), target).config.sinks


def test_sinks_of_some_layers_are_named(target, tmp_path):
    place = directory(tmp_path / "d")
    tensors = read_tensors(place / "model.safetensors")
    save_tensors({k: one for k, one in tensors.items() if k != f"layers.1.{SINK}"}, place / "model.safetensors")
    with pytest.raises(ModelLoadError, match=f"tensor 'layers.1.{SINK}' is missing"):
        read("dflash", place, target)


def test_a_key_among_those_of_the_layers_is_read(target, tmp_path):
    """In speculators' layout a target's keys may have come along."""
    place = directory(tmp_path / "d")
    find_learner("dflash").formats[0].write(read("dflash", place, target), target, "t", tmp_path / "s")
    told = json.loads((tmp_path / "s/config.json").read_text())
    told["transformer_layer_config"]["attention_value_scale"] = told.pop("attention_value_scale")
    (tmp_path / "s/config.json").write_text(json.dumps(told))
    assert read("dflash", tmp_path / "s", target).config.value_scale == SCALE


def test_it_drafts(target, tmp_path):
    """The guess is the likeliest token of each slot."""
    place = directory(tmp_path / "d")
    net, seen = read("dflash", place, target), 0
    for text, draft in guesses(target, place, "dflash", Budget(depth=3)):
        states = torch.cat([tap_states(target, text[:-1], tap) for tap in net.config.taps], -1)
        wanted = by_hand(place, target.embedding, target.head_matrix(), states, len(text) - 1, text[-1])
        assert draft.tokens[1:].tolist() == wanted[1:].argmax(-1).tolist()
        seen += 1
    assert seen > 5


@torch.no_grad()
def tap_states(target, ids, tap):
    places = torch.arange(len(ids))
    found = target.run(target.embed(torch.tensor(ids), places), places, CausalContext(1, len(ids)), taps=(tap,))
    return found.taps[tap]


def test_it_learns(target, tmp_path):
    """Gradients reach the sinks and the norms; what was trained is saved as what it is."""
    place, method = directory(tmp_path / "d"), find_learner("dflash")
    learner = method.load(method.options(), target, place)
    ids = torch.arange(20)[None] * 7 % V
    counts = torch.ones(1, 19, dtype=torch.bool)
    lesson = Teacher(target, learner.taps).lesson(PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts))
    sum(guess.head(guess.states).logsumexp(-1).sum() for guess in learner.look(lesson).guesses).backward()
    for name in ("layers.0.sinks", "layers.1.sinks", "hidden_norm.weight", "layers.0.k_norm.weight"):
        assert float(learner.net.get_parameter(name).grad.abs().min()) > 0, name
    learner.save(tmp_path / "again")
    assert same(learner.net, read("dflash", tmp_path / "again", target))
