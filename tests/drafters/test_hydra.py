"""Hydra's heads and Hydra++: the layer below them, its memory of a text, noise, and files of before."""

import json
from dataclasses import replace

import pytest
import torch

from outdraft.core.drafter import Seen
from outdraft.core.learner import Moment
from outdraft.drafters.hydra.learn import LEARN, HydraLearning
from outdraft.drafters.hydra.net import HydraNet
from outdraft.drafters.shared.heads.files import load_heads
from outdraft.drafters.shared.heads.states import StemStates
from outdraft.drafters.shared.networks.prepare import make_exact
from outdraft.engine.runner import Runner
from outdraft.nn.context import CausalContext
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from tests.drafters.drafting import sequence
from tests.training.toys import lesson_rows, rows, toy_decoder

PLUS = HydraLearning(prefix_layer=True, num_layers=3)


def random_plus(target, seed=1):
    learner = LEARN.new(PLUS, target, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.module.parameters():
            if parameter.dim() > 1:
                parameter += torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5
    return learner


@torch.inference_mode()
def test_the_memory_of_a_text_is_one_pass_over_all_of_it():
    """In whatever pieces it is committed; behind rows that were never seen it begins anew."""
    target = tiny_model(vocab=31, dtype=torch.float64)
    net = random_plus(target).module.to(torch.float64).eval().requires_grad_(False)
    make_exact(net)
    states = torch.randn(12, target.config.hidden_size, dtype=torch.float64)
    tap, memory = net.config.tap, StemStates(net.stem, net.config, lambda h: 2 * h, Runner(target).port)
    seqs = [sequence(range(1, 14)), sequence(range(3, 13))]
    memory.begin(seqs)

    def see(seq, start, stop):
        memory.learn(Seen(seq=seq, start=start, num_committed=stop - start, hidden={tap: states[start:stop]}))

    def whole(start, stop):
        return net.stem(2 * states[start:stop], None, torch.arange(start, stop), CausalContext(1, stop - start))[-1]

    assert not memory.knows(seqs[0])
    for start, stop in ((0, 5), (5, 6), (6, 11)):
        see(seqs[0], start, stop)
        if start:  # what waits is read now, behind what was read before
            torch.testing.assert_close(memory.of(seqs[:1])[0], whole(0, stop))
    assert not memory.knows(seqs[0]), "the row before the pending token is not there yet"
    see(seqs[0], 11, 12)
    see(seqs[1], 0, 9)
    assert memory.knows(seqs[0]) and memory.knows(seqs[1])
    found = memory.of([seqs[1], seqs[0], seqs[1]])
    for ours, theirs in zip(found, (whole(0, 9), whole(0, 12), whole(0, 9)), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert torch.equal(memory.of(seqs[:1])[0], found[1]), "asked again, it says the same"
    seqs[1].tokens += [4, 5]
    see(seqs[1], 10, 11)
    torch.testing.assert_close(memory.of(seqs[1:])[0], whole(10, 11))
    memory.forget(seqs)
    assert memory.is_empty


def test_untrained_the_layer_changes_nothing():
    target = toy_decoder(1)
    lesson = Teacher(target, (3,)).lesson(lesson_rows(rows(2)))
    with torch.no_grad():
        plain, plus = (LEARN.new(options, target, 0).look(lesson) for options in (HydraLearning(), PLUS))
    for ours, theirs in zip(plus.guesses, plain.guesses, strict=True):
        torch.testing.assert_close(ours.states, theirs.states)


def test_every_layer_of_a_head_is_its_own():
    net = random_plus(toy_decoder(1)).module
    weights = [layer.linear.weight for head in net.layers for layer in head]
    assert len(weights) == 4 * 2
    assert not any(torch.equal(a, b) for i, a in enumerate(weights) for b in weights[:i])


@pytest.mark.parametrize("options", [HydraLearning(noise=0.3), replace(PLUS, noise=0.3)])
def test_noise_is_for_training_alone(options):
    target = toy_decoder(1)
    learner = LEARN.new(options, target, 0)
    exam = Teacher(target, (3,)).lesson(lesson_rows(rows(2)))
    said = {}
    with torch.no_grad():
        for name, moment in (
            ("exam", None),
            ("a", Moment(step=0, steps=2, seed=1)),
            ("b", Moment(step=1, steps=2, seed=2)),
        ):
            said[name] = learner.look(replace(exam, moment=moment)).guesses[0].states
        plain = LEARN.new(replace(options, noise=0.0), target, 0).look(exam).guesses[0].states
    assert torch.equal(said["exam"], plain)
    assert not torch.equal(said["a"], plain) and not torch.equal(said["a"], said["b"])


def test_files_of_before_are_read(tmp_path):
    target = toy_decoder(1)
    learner = LEARN.new(HydraLearning(), target, 0)
    learner.save(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    later = {"num_layers", "bypass", "projection_bias", "own_projections", "draft_vocab_size"}
    of_before = {key: value for key, value in told.items() if key not in later and "stem" not in key}
    assert len(of_before) == 6 and "scale" in of_before
    (tmp_path / "config.json").write_text(json.dumps(of_before))
    again = LEARN.load(PLUS, target, tmp_path)
    for ours, theirs in zip(learner.module.parameters(), again.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"stem_heads": 0}, "are impossible"),
        ({"stem_kv_heads": 3}, "are impossible"),
        ({"stem_inner": 7}, r"has shape \(96, 32\); its config.json asks for \(14, 32\)"),
        ({"scale": float("inf")}, "scale=inf of its config.json must be a finite number"),
        ({"stem_rope_theta": float("nan")}, "stem_rope_theta=nan"),
    ],
)
def test_layers_that_cannot_be_are_refused(change, why, tmp_path):
    random_plus(toy_decoder(1)).save(tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**told, **change}))
    with pytest.raises(ModelLoadError, match=why):
        load_heads(HydraNet, tmp_path, torch.float32)


def test_options_out_of_range_are_refused():
    for wrong in ({"num_layers": 0}, {"noise": -0.1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            HydraLearning(**wrong)
