"""EAGLE's training-time test, by what it is for: tokens after the first, drafted from the network's own features.

In the toy text a token follows from the last but one, so from the second drafted token on the network needs what its
own output carries. A network that was trained on true features only is right about the first token and lost behind it.
"""

import numpy as np
import pytest
import torch

from lab.zoo.pretrain import NextToken
from lab.zoo.streams import Sampler, Stream
from outdraft.drafters.eagle.learn import LEARN, EagleLearning
from outdraft.models.files.load import save_model
from outdraft.training.check import Checked, errors_of, measure
from outdraft.training.lessons import Teacher
from outdraft.training.promise import promise
from outdraft.training.record import Promise, PromiseTerms
from outdraft.training.walk import Walk
from tests.training.toys import VOCAB, draft_loop, draft_objective, toy_decoder, toy_loop

DEPTH = 3
CHAIN = {"width": 1, "sample": "match"}


def interleaved(seed: int) -> Sampler:
    """Two texts, token by token in turn: each token follows from the one before the last."""
    rng = np.random.default_rng(7)
    follow = rng.integers(VOCAB, size=(VOCAB, 2))
    ids = [0, 1]
    for choice in rng.choice(2, size=20_000, p=[0.8, 0.2]):
        ids.append(int(follow[ids[-2], choice]))
    return Sampler([Stream(name="toy", ids=np.array(ids, np.uint16), weight=1.0, starts=None)], seed)


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A target on disk, an EAGLE network trained for it, and where it was saved."""
    place = tmp_path_factory.mktemp("scene")
    target = toy_decoder(1)
    toy_loop(NextToken(target), place / "target-run", data=interleaved(0), steps=80).run()
    save_model(target.requires_grad_(False), place / "target")
    options = EagleLearning(
        taps=(0, 1, 3), num_heads=2, num_kv_heads=1, head_dim=8, intermediate_size=32, num_steps=DEPTH
    )
    learner = LEARN.new(options, target, 0)
    draft_loop(draft_objective(learner, target), place / "run", interleaved(0), steps=40).run()
    learner.save(place / "eagle")
    return target, learner, place


def terms(temperature, texts=24):
    prompts = tuple(tuple(prompt) for prompt in interleaved(5).rows(0, 0, texts, 12).tolist())
    return PromiseTerms(prompts=prompts, max_tokens=24, depth=DEPTH, temperature=temperature)


def test_tokens_after_the_first_are_learned(scene):
    _, _, place = scene
    found = measure("eagle", {"model": str(place / "eagle"), **CHAIN}, place / "target", terms(0.0, 12))
    assert min(found.conditional) > 0.6, found


def promised(scene, asked):
    target, learner, place = scene
    said = promise(learner, Teacher(target, learner.taps), place / "target", asked)
    return Promise(terms=asked, tau=said.tau, standard_error=said.standard_error, conditional=tuple(said.conditional))


@pytest.fixture(scope="module")
def greedily(scene):
    """What the trainer promises of greedy texts."""
    return promised(scene, terms(0.0))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_engine_keeps_the_trainers_promise(scene, greedily, temperature):
    _, _, place = scene
    said = promised(scene, terms(temperature, 48)) if temperature else greedily
    seen = measure("eagle", {"model": str(place / "eagle"), **CHAIN}, place / "target", said.terms)
    assert said.tau > 2 and Checked(promise=said, measured=seen).outcome != "broken"
    if temperature == 0:
        assert seen.tau == pytest.approx(said.tau, rel=1e-3), "greedy, they speak of the same texts"


def texts_drafted(rng: np.random.Generator, tau: float, texts: int) -> Walk:
    """Rounds through texts of 63 tokens, about as spread as an eagle3's of 200 steps at temperature 1 (zoo:target)."""
    rounds = np.maximum(1, rng.normal(63 / tau, 3.6, texts))
    return Walk(tokens=(63.0,) * texts, rounds=tuple(rounds), reached=(1.0,), kept=(0.5,))


@pytest.mark.parametrize(
    ("texts", "share", "least", "most"), [(104, 1.0, 0.0, 0.01), (104, 0.92, 0.99, 1.0), (2, 1.0, 0.0, 0.01)]
)
def test_a_sound_draft_is_hardly_ever_called_broken_and_a_lossy_one_nearly_always(texts, share, least, most):
    """Both sides draw other texts. `share`: what is left of the promised tokens a pass."""
    rng, count, broken = np.random.default_rng(0), 2000, 0
    asked = PromiseTerms(prompts=(), max_tokens=64, depth=1, temperature=1.0)
    for _ in range(count):
        said, seen = texts_drafted(rng, 1.61, texts), texts_drafted(rng, 1.61 * share, texts)
        one = Promise(terms=asked, tau=said.tau, standard_error=said.standard_error, conditional=(0.5,))
        broken += Checked(promise=one, measured=seen).outcome == "broken"
    assert least <= broken / count <= most


@pytest.mark.parametrize(("texts", "exact"), [(8, 4.530), (12, 3.850), (30, 3.280), (104, 3.075), (10_000, 3.001)])
def test_few_texts_take_as_many_errors_as_students_distribution_says(texts, exact):
    """Its quantiles for what three errors of the normal distribution leave outside."""
    assert errors_of(texts) == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("fault", ["taps", "norm", "order"])
def test_what_was_lost_on_the_way_is_seen(scene, greedily, fault, tmp_path):
    """Shifted taps, a norm that was not saved, features in another order: each file loads, and drafts worse."""
    import json

    from safetensors.torch import load_file, save_file

    _, learner, place = scene
    learner.save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    tensors = load_file(tmp_path / "model.safetensors")
    if fault == "taps":
        config["taps"] = [1, 2, 2]
    elif fault == "norm":
        tensors["norm.weight"] = torch.ones_like(tensors["norm.weight"]) * tensors["norm.weight"].flip(0)
        tensors["feature_norm.weight"] = tensors["feature_norm.weight"] * 0.2
    else:
        config["taps"] = [3, 1, 0]
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors")
    seen = measure("eagle", {"model": str(tmp_path), **CHAIN}, place / "target", greedily.terms)
    checked = Checked(promise=greedily, measured=seen)
    assert not checked.holds and checked.line.startswith("BROKEN")
