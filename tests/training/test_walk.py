"""The rounds through a text: by expectation they are what drawing them would give, greedy they are counted exactly."""

import pytest
import torch

from outdraft.training.walk import Walk, walk


def drawn(ratios, counts, generator):
    """One walk through one text with coins: tokens, rounds, and looked at / kept by depth."""
    depth, length = ratios.shape
    reached, kept = [0] * depth, [0] * depth
    t, rounds = 0, 0
    while t < length:
        if not counts[t]:
            t += 1
            continue
        rounds += 1
        step = 0
        while step < depth and t + step < length and counts[t + step]:
            reached[step] += 1
            if torch.rand((), generator=generator) >= ratios[step, t + step]:
                break
            kept[step] += 1
            step += 1
        t += step + 1
    return rounds, reached, kept


def test_expectations_are_the_means_of_draws():
    generator = torch.Generator().manual_seed(0)
    ratios = torch.rand(3, 1, 9, generator=generator)
    counts = torch.tensor([[0, 0, 1, 1, 1, 1, 1, 1, 1]], dtype=torch.bool)
    found = walk(ratios, counts)
    draws = [drawn(ratios[:, 0], counts[0], generator) for _ in range(20_000)]
    assert found.tokens == (7.0,)
    assert found.rounds[0] == pytest.approx(sum(one[0] for one in draws) / len(draws), abs=0.03)
    for d in range(3):
        assert found.reached[d] == pytest.approx(sum(one[1][d] for one in draws) / len(draws), abs=0.04)
        assert found.kept[d] == pytest.approx(sum(one[2][d] for one in draws) / len(draws), abs=0.04)


def test_greedy_rounds_are_counted():
    #                        round 1: 2 kept, 1 own | round 2: rejected at once | round 3: 1 kept, the text ends
    ratios = torch.tensor([[[1.0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 0]]]).transpose(0, 1)
    found = walk(ratios, torch.ones(1, 6))
    assert found.rounds == (3.0,) and found.tau == 2.0
    assert found.kept == (2.0, 1.0) and found.reached == (3.0, 2.0)
    assert found.conditional == [pytest.approx(2 / 3), 0.5] and found.joint == [
        pytest.approx(2 / 3),
        pytest.approx(1 / 3),
    ]


@pytest.mark.parametrize(("ratio", "tau"), [(0.0, 1.0), (1.0, 4.0)])
def test_the_extremes(ratio, tau):
    assert walk(torch.full((3, 2, 8), ratio), torch.ones(2, 8)).tau == tau


def test_runs_apart_are_walked_apart():
    """A draft that goes over the end of a run ends there, and the next run begins with a round of its own."""
    counts = torch.tensor([[1, 1, 0, 1, 1, 1]], dtype=torch.bool)
    found = walk(torch.ones(2, 1, 6), counts)
    assert found.rounds == (2.0,) and found.tokens == (5.0,)


def test_a_round_without_a_guess_is_not_looked_at():
    guessed = torch.ones(1, 1, 4)
    guessed[..., 0] = 0
    found = walk(torch.tensor([[[0.0, 1, 0, 1]]]), torch.ones(1, 4), guessed)
    assert found.rounds == (3.0,) and found.reached == found.kept == (2.0,)


def test_walks_add_up_and_know_how_sure_they_are():
    one = walk(torch.zeros(1, 1, 4), torch.ones(1, 4))
    two = walk(torch.ones(1, 1, 4), torch.ones(1, 4))
    both = one + two
    assert both.tau == 8 / 6 and both.tokens == (4.0, 4.0) and both.rounds == (4.0, 2.0)
    far = ((4 - 4 * 8 / 6) ** 2 + (4 - 2 * 8 / 6) ** 2) ** 0.5
    assert both.standard_error == pytest.approx(far * 2**0.5 / 6)
    assert (one + one).standard_error == 0 and one.standard_error == one.tau, "of one text it is not known"
    assert Walk(tokens=(), rounds=(), reached=(0.0,), kept=(0.0,)).conditional == [0.0]
