"""A training run that is interrupted and resumed ends with the same bits, for every kind of draft."""

from dataclasses import replace

import pytest
import torch
from training.toys import Lessons, toy_decoder, toy_loop, toy_sampler

from outdraft.core.learner import Moment
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.learn.losses import mixed
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows

STEPS = 4


class Timed(Lessons):
    """Rows that know where in the run they stand, as a course's do."""

    def rows(self, step, first, count, length) -> PackedRows:
        made = super().rows(step, first, count, length)
        return replace(made, moment=Moment(step=step, steps=STEPS, seed=first))


def loop_of(kind, target, place):
    method = find_learner(kind)
    learner = method.new(method.options(), target, 0)
    loss = mixed(method.loss or {"forward_kl": 1.0})  # where the learner's own is all there is
    objective = DraftObjective(learner, Teacher(target, learner.taps), loss.rows, beside=loss.beside)
    return learner, toy_loop(objective, place, data=Timed(toy_sampler()), steps=STEPS, batch_tokens=64, micro_tokens=64)


@pytest.mark.parametrize("kind", learner_names())
def test_it_ends_with_the_same_bits(kind, tmp_path):
    def run(place, until):
        learner, loop = loop_of(kind, toy_decoder(1).requires_grad_(False), tmp_path / place)
        if until > 2 and place == "parts":
            loop.resume()
        loop.run(until=until)
        return {name: one.detach().clone() for name, one in learner.module.named_parameters() if one.requires_grad}

    begun, whole = run("begun", 0), run("whole", STEPS)
    run("parts", 2)
    parts = run("parts", STEPS)
    assert all(torch.equal(one, whole[name]) for name, one in parts.items())
    assert any(not torch.equal(one, whole[name]) for name, one in begun.items()), "it learns"
