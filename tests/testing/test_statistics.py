"""The two-sample test keeps its level, has the power it states, and its tails are the textbook's."""

import random

import pytest

from outdraft.testing.statistics import chi_square_tail, detectable_shift, make_bins, noncentral_tail, two_sample


def test_tails_from_the_tables():
    assert chi_square_tail(3.841, 1) == pytest.approx(0.05, abs=1e-4)
    assert chi_square_tail(18.307, 10) == pytest.approx(0.05, abs=1e-4)
    assert noncentral_tail(3.841, 1, 0.0) == pytest.approx(0.05, abs=1e-4)
    # one degree: (Z + d)^2 > x, with d^2 the noncentrality; 1.96 - 2.8016 = -0.8416, the 0.8 quantile
    assert noncentral_tail(3.8415, 1, 2.8016**2) == pytest.approx(0.8, abs=1e-3)


def draw(rng: random.Random, weights: list[float], n: int) -> list[int]:
    return rng.choices(range(len(weights)), weights, k=n)


def test_equal_distributions_pass_and_p_values_are_uniform():
    rng = random.Random(1)
    weights = [1 / (i + 1) for i in range(200)]
    p = [two_sample(draw(rng, weights, 400), draw(rng, weights, 400)).p_value for _ in range(400)]
    assert 0.02 < sum(x < 0.05 for x in p) / len(p) < 0.09
    assert 0.42 < sum(p) / len(p) < 0.58


def test_stated_power_is_reached():
    """A shift of exactly the stated size, in the shape that is hardest to see, is found about as often as stated."""
    n, alpha, power, bins = 2000, 1e-3, 0.95, 16
    shift = detectable_shift((n, n), bins - 1, alpha=alpha, power=power)
    assert 0 < shift < 0.2
    flat = [1 / bins] * bins
    bent = [
        w + (1 if i % 2 else -1) * 2 * shift / bins for i, w in enumerate(flat)
    ]  # d proportional to m: the worst case
    rng = random.Random(2)
    found = [two_sample(draw(rng, flat, n), draw(rng, bent, n)).p_value < alpha for _ in range(300)]
    assert 0.90 < sum(found) / len(found) <= 1.0


def test_shift_shrinks_with_the_sample():
    shifts = [detectable_shift((n, n), 40, alpha=1e-3, power=0.95) for n in (500, 2000, 8000)]
    assert shifts[0] == pytest.approx(2 * shifts[1], rel=1e-3) and shifts[1] == pytest.approx(2 * shifts[2], rel=1e-3)


def test_bins_are_large_enough_and_few():
    from collections import Counter

    pooled = Counter({("often", i): 100 - i for i in range(60)} | {("rare", i): 1 for i in range(500)})
    bins = make_bins(pooled)
    sizes = Counter()
    for outcome, n in pooled.items():
        sizes[bins[outcome]] += n
    assert set(bins) == set(pooled) and len(sizes) <= 48 and min(sizes.values()) >= 20


def test_one_outcome_is_nothing_to_compare():
    same = two_sample([1] * 50, [1] * 50)
    assert same.degrees == 0 and same.p_value == 1.0
