"""EAGLE-1's network by its formulas, its files, its losses, its noise, and its static tree."""

import json
from dataclasses import replace

import pytest
import torch
from drafters.drafting import make, sequence
from safetensors.torch import load_file, save_file
from torch.nn.functional import rms_norm, silu, smooth_l1_loss

from outdraft.core.draft import chain, host_tree
from outdraft.core.drafter import Seen
from outdraft.core.learner import Moment
from outdraft.core.learner_registry import find_learner
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.drafters.shared.features.last_feature import load_last_feature
from outdraft.drafters.shared.features.static_tree import STATIC, TreeOptions
from outdraft.engine.runner import Runner
from outdraft.learn.compare import compare
from outdraft.learn.losses import soft_cross_entropy
from outdraft.nn.context import CausalContext
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows

VOCAB, WIDTH = 31, 32


@pytest.fixture(scope="module")
def target():
    return tiny_model(vocab=VOCAB, layers=3, seed=1, dtype=torch.float32)


def learner_of(target, kind="eagle1", **options):
    method = find_learner(kind)
    learner = method.new(method.options(**options), target, 0)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in learner.module.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return learner


def lesson_of(target, learner, length=9, moment=None):
    ids = torch.randint(VOCAB, (1, length), generator=torch.Generator().manual_seed(4))
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=torch.ones(1, length - 1, dtype=torch.bool))
    return Teacher(target, learner.taps).lesson(replace(rows, moment=moment))


@torch.no_grad()
def test_the_network_is_the_papers_formula(target, tmp_path):
    """By published names, with plain attention: no input norm in the layer, and no norm behind it."""
    learner = learner_of(target)
    learner.save(tmp_path)
    w = load_file(tmp_path / "model.safetensors")
    assert set(w) == {
        "fc.weight",
        "fc.bias",
        "layers.0.post_attention_layernorm.weight",
        *(f"layers.0.self_attn.{one}_proj.weight" for one in "qkvo"),
        *(f"layers.0.mlp.{one}_proj.weight" for one in ("gate", "up", "down")),
    }
    lesson = lesson_of(target, learner)
    count = len(lesson.states) - 1
    f = rms_norm(lesson.states[:count], (WIDTH,), target.final_norm.weight, target.final_norm.eps)
    x = torch.cat((target.embedding[lesson.ids[0, 1 : count + 1]], f), -1) @ w["fc.weight"].T + w["fc.bias"]
    heads, kv_heads, size = 4, 2, 8
    q, k, v = (
        (x @ w[f"layers.0.self_attn.{one}_proj.weight"].T).view(count, -1, size).transpose(0, 1) for one in "qkv"
    )
    angle = torch.arange(count)[:, None] * 10000.0 ** -(torch.arange(0, size, 2) / size)
    cos, sin = (torch.cat((one, one), -1) for one in (angle.cos(), angle.sin()))
    q, k = (one * cos + torch.cat((-one[..., size // 2 :], one[..., : size // 2]), -1) * sin for one in (q, k))
    k, v = (one.repeat_interleave(heads // kv_heads, 0) for one in (k, v))
    scores = (q @ k.transpose(-1, -2)) * size**-0.5 + torch.full((count, count), -torch.inf).triu(1)
    x = x + (scores.softmax(-1) @ v).transpose(0, 1).flatten(1) @ w["layers.0.self_attn.o_proj.weight"].T
    y = rms_norm(x, (WIDTH,), w["layers.0.post_attention_layernorm.weight"], target.final_norm.eps)
    gate, up = (y @ w[f"layers.0.mlp.{one}_proj.weight"].T for one in ("gate", "up"))
    x = x + (silu(gate) * up) @ w["layers.0.mlp.down_proj.weight"].T
    guess = learner.look(lesson).guesses[0]
    torch.testing.assert_close(guess.states, x, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(guess.head(guess.states), x @ target.lm_head.weight.T, atol=1e-5, rtol=1e-4)


def test_features_are_to_be_those_of_the_next_position(target):
    """Of each pair the true feature behind it, only while something is learned."""
    learner = learner_of(target, noise=0.0)
    lesson = lesson_of(target, learner, moment=Moment(step=0, steps=9, seed=1))
    (guess,) = learner.look(lesson).guesses
    after = rms_norm(lesson.states[1:], (WIDTH,), target.final_norm.weight, target.final_norm.eps)
    (beside,) = learner.look(lesson).beside
    torch.testing.assert_close(beside.values, smooth_l1_loss(guess.states, after, reduction="none").mean(-1))
    (grad,) = torch.autograd.grad(beside.values.sum(), learner.module.fc.weight)
    assert grad.any()
    told = [
        compare(learner.look(lesson), lesson, target.logits, soft_cross_entropy, beside={"smooth_l1": f}).loss
        for f in (0, 2)
    ]
    torch.testing.assert_close(told[1] - told[0], 2 * smooth_l1_loss(guess.states, after))
    with torch.no_grad():
        exam = learner.look(replace(lesson, moment=None))
    assert [one.weight for one in exam.guesses] == [1.0, 0.0, 0.0, 0.0] and not exam.beside
    assert find_learner("eagle1").loss == {"smooth_l1": 1.0, "soft_cross_entropy": 0.1}


def test_noise_is_of_the_published_width_and_a_function_of_the_moment(target):
    """(u - 0.5) * 0.2 * 512 / T on what is read, where something is learned."""
    learner = learner_of(target, noise=0.2)
    seen = []
    run = learner.module.run
    learner.module.run = lambda embeds, f, *rest: seen.append(f.detach()) or run(embeds, f, *rest)
    lesson = lesson_of(target, learner, length=33)
    plain = rms_norm(lesson.states[:-1], (WIDTH,), target.final_norm.weight, target.final_norm.eps)

    def read(seed):
        learner.look(replace(lesson, moment=None if seed is None else Moment(step=3, steps=9, seed=seed)))
        return seen.pop(0) if seed is not None else seen[0]

    first, again, other = read(5), read(5), read(6)
    assert torch.equal(first, again) and not torch.equal(first, other)
    widest = 0.1 * 512 / 32
    noise = first - plain
    assert 0.9 * widest < noise.abs().max() <= widest * 1.0001 and abs(float(noise.mean())) < widest / 8
    seen.clear()
    assert torch.allclose(read(None), plain, atol=1e-6)


def test_the_static_tree_has_25_nodes_on_five_levels():
    assert len(set(STATIC)) == 25
    assert [sum(len(path) == depth for path in STATIC) for depth in range(1, 6)] == [4, 8, 8, 3, 2]
    for path in STATIC:  # parents and elder siblings are there
        assert len(path) == 1 or path[:-1] in STATIC
        assert path[-1] == 0 or (*path[:-1], path[-1] - 1) in STATIC
    assert TreeOptions().shape is not None and TreeOptions(tree="dynamic").shape is None
    with pytest.raises(ConfigError, match="'static'"):
        TreeOptions(tree="fixed")


@torch.inference_mode()
@pytest.mark.parametrize("sample", ["greedy", "match"])
@pytest.mark.parametrize(("depth", "size"), [(5, 25), (3, 20), (1, 4)])
def test_what_is_drafted_has_this_shape(sample, depth, size, target, tmp_path):
    learner_of(target).save(tmp_path)
    runner = Runner(target)
    drafter = make("eagle1", runner, model=str(tmp_path), sample=sample)
    seq = sequence([3, 1, 4, 1, 5, 9, 2, 6], temperature=1.0)
    n = len(seq.tokens) - 1
    runner.begin(seq)
    drafter.begin([seq])
    hidden = runner.forward(pack([seq], [chain([seq.pending])]), drafter.needs.taps).hidden
    runner.commit(seq, range(n))
    seq.num_cached = n
    drafter.observe([Seen(seq=seq, start=0, num_committed=n, hidden={t: h[:n] for t, h in hidden.items()})])
    draft = drafter.propose([seq], [Budget(depth=depth)])[0]
    tree = host_tree(draft)
    assert draft.num_nodes == size + 1 and (draft.q is None) == (sample == "greedy")

    def rank(node):
        return tree.children[tree.parents[node]].index(node)

    found = {tuple(rank(one) for one in tree.path(node)) for node in range(1, size + 1)}
    assert found == {path for path in STATIC if len(path) <= depth}


def test_files_say_what_they_bring_and_are_refused_where_they_cannot_be(target, tmp_path):
    learner_of(target).save(tmp_path)
    config, tensors = json.loads((tmp_path / "config.json").read_text()), load_file(tmp_path / "model.safetensors")

    def load(told=None, drop=(), **more):
        (tmp_path / "config.json").write_text(json.dumps({**config, **(told or {})}))
        save_file({k: v for k, v in (tensors | more).items() if k not in drop}, tmp_path / "model.safetensors")
        return load_last_feature(tmp_path, target)

    config.pop("bias")
    assert load({"model_type": "phi3"}).config == load().config  # the class says what is computed
    assert load().config.bias and not load(drop=("fc.bias",)).config.bias
    table = torch.randn(VOCAB, WIDTH)
    own = load(**{"embed_tokens.weight": table})
    assert torch.equal(own.embed(torch.tensor([3]), torch.tensor([0]))[0], table[3])
    for told, drop, more, error, words in (
        ({"bias": True}, ("fc.bias",), {}, ModelLoadError, "fc.bias' is missing"),
        ({}, ("fc.weight",), {}, ModelLoadError, "no EAGLE-1 network"),
        ({"vocab_size": 30}, (), {}, CapabilityError, "its own target"),
        (
            {},
            (),
            {"layers.0.input_layernorm.weight": torch.ones(WIDTH)},
            ModelLoadError,
            "are none that outdraft knows",
        ),
        ({"model_type": "gpt2", "architectures": ["X"]}, (), {}, ModelLoadError, "not supported"),
    ):
        with pytest.raises(error, match=words):
            load(told, drop, **more)


def test_the_layer_sees_its_own_text_alone(target):
    """Position i is that of feature i, so a later start of a text changes nothing."""
    net = learner_of(target).module
    e, f = torch.randn(2, 5, WIDTH)
    first = net.run(e, f, torch.arange(5), CausalContext(1, 5))
    torch.testing.assert_close(net.run(e, f, torch.arange(5) + 7, CausalContext(1, 5)), first, atol=1e-4, rtol=1e-3)
