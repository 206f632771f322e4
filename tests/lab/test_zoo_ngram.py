"""The n-gram baseline is a distribution, and learns."""

import numpy as np

from lab.zoo.ngram import NgramModel
from tests.training.toys import VOCAB, toy_sampler


def test_probabilities_of_all_next_tokens_sum_to_one():
    rows = toy_sampler().rows(0, 0, 40, 30).numpy()
    model = NgramModel(rows, 3, VOCAB)
    for context in (rows[0, :2], np.array([VOCAB - 1, VOCAB - 1])):
        each = np.array([[*context, w] for w in range(VOCAB)])
        assert abs(np.exp(-model.nats(each)).sum() - 1) < 1e-9


def test_a_longer_context_helps_and_a_shape_is_kept():
    train, valid = toy_sampler().rows(0, 0, 200, 30).numpy(), toy_sampler(5).rows(0, 0, 20, 30).numpy()
    one, two = NgramModel(train, 1, VOCAB).nats(valid), NgramModel(train, 2, VOCAB).nats(valid)
    assert one.shape == (20, 30) and two.shape == (20, 29)
    assert two.mean() < one.mean() - 1
