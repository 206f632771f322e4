"""HASS: forwards aligned with drafting, and the losses of the paper."""

from itertools import pairwise

import torch

from outdraft.core.learner import Moment
from outdraft.core.learner_registry import find_learner
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows


def test_hass_learns_three_forwards_each_on_the_one_before():
    target, method = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32), find_learner("hass")
    learner = method.new(method.options(noise=0.0), target, 0)
    seen = []
    run = learner.module.run
    learner.module.run = lambda embeds, f, *rest: seen.append((f, run(embeds, f, *rest))) or seen[-1][1]
    ids = torch.randint(31, (1, 9), generator=torch.Generator().manual_seed(4))
    counts = torch.ones(1, 8, dtype=torch.bool)
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts, moment=Moment(step=0, steps=9, seed=1))
    outlook = learner.look(Teacher(target, learner.taps).lesson(rows))
    assert [guess.weight for guess in outlook.guesses] == [1.0, 1.0, 1.0] and len(seen) == 3
    for (f, g), (then, _) in pairwise(seen):
        assert torch.equal(then[1:], g[:-1]) and torch.equal(then[:1], f[:1])
    assert method.loss == {"top_cross_entropy": 1.0, "smooth_l1": 1.0, "soft_cross_entropy": 0.1}


def test_a_distance_of_features_weighs_as_much_as_the_forward_that_it_is_of():
    target, method = tiny_model(vocab=31, layers=3, seed=1, dtype=torch.float32), find_learner("hass")
    learner = method.new(method.options(noise=0.0, decay=0.5), target, 0)
    ids = torch.randint(31, (1, 9), generator=torch.Generator().manual_seed(4))
    counts = torch.ones(1, 8, dtype=torch.bool)
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=counts, moment=Moment(step=0, steps=9, seed=1))
    outlook = learner.look(Teacher(target, learner.taps).lesson(rows))
    assert [one.weight for one in outlook.beside] == [guess.weight for guess in outlook.guesses] == [1.0, 0.5, 0.25]
    assert all(torch.equal(a.rows, b.rows) for a, b in zip(outlook.beside, outlook.guesses, strict=True))
