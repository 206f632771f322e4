"""Noise is a function of (seed, step, rows), and an exam has none."""

from dataclasses import replace

import pytest
import torch

from outdraft.core.learner import Moment
from outdraft.drafters.shared.learning.states import with_noise
from outdraft.training.config import Schedule
from outdraft.training.corpus import TrainingCorpus
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedBatches, Packing
from tests.training.toys import lesson_rows, rows, toy_config, toy_decoder, toy_ids

SCHEDULE = Schedule(toy_config(steps=10))


def _corpus():
    ids = toy_ids(size=400)
    return TrainingCorpus(ids=ids, counts=ids >= 0, starts=torch.arange(0, len(ids) + 1, len(ids)).numpy())


def moment(seed, step, first):
    return PackedBatches(Packing(_corpus(), seed), 64, SCHEDULE).rows(step, first, 2, 17).moment


def test_every_row_has_numbers_of_its_own_that_come_again():
    assert moment(0, 3, 2) == moment(0, 3, 2)
    assert (moment(0, 3, 2).step, moment(0, 3, 2).steps) == (3, 10)
    of = [(0, 3, 2, 0, 0), (0, 3, 2, 1, 0), (0, 3, 0, 0, 0), (0, 4, 2, 0, 0), (1, 3, 2, 0, 0), (0, 3, 2, 0, 1)]
    drawn = {float(torch.rand((), generator=moment(*place).generator(row, use))) for *place, row, use in of}
    assert len(drawn) == len(of)


def test_neither_passes_nor_workers_change_the_noise_of_a_row():
    """Rows 2 and 3 of a batch, in one pass, and in one each."""

    def noise(first, count):
        made = PackedBatches(Packing(_corpus(), 0), 64, SCHEDULE).rows(3, first, count, 17)
        lesson = Teacher(toy_decoder(), ()).lesson(made)
        return with_noise(torch.zeros(count * 16, 8), lesson, 0.5)

    whole = noise(2, 2)
    assert torch.equal(whole, torch.cat((noise(2, 1), noise(3, 1))))
    assert not torch.equal(whole[:16], whole[16:])


def test_noise_fills_its_width_and_belongs_to_its_batch():
    lesson = Teacher(toy_decoder(), ()).lesson(replace(lesson_rows(rows(4)), moment=Moment(step=0, steps=1, seed=5)))
    states = torch.zeros(4000, 32)
    drawn = with_noise(states, lesson, 0.5)
    assert torch.equal(drawn, with_noise(states, lesson, 0.5))
    assert drawn.abs().max() <= 0.5 and drawn.std() == pytest.approx(0.5 / 3**0.5, rel=0.02)
    assert abs(drawn.mean()) < 0.01
    other = replace(lesson, moment=Moment(step=0, steps=1, seed=6))
    assert not torch.equal(drawn, with_noise(states, other, 0.5))
    exam = replace(lesson, moment=None)
    assert with_noise(states, exam, 0.5) is states and with_noise(states, lesson, 0.0) is states
