"""Keyed noise is uniform, independent across keys, and a race on it draws from the distribution, also without
replacement."""

import itertools

import pytest
import torch

from lab.fuzz.keyed_draw import noise
from outdraft.options.errors import NumericsError
from outdraft.sampling.coins import KeyedCoins, target_key, verifier_coins
from outdraft.sampling.draft_coins import KeyedDraftCoins, draft_coins
from outdraft.sampling.draw import race
from outdraft.sampling.noise import Purpose, fold, uniform, uniforms
from tests.helpers.tables import one_sequence


def chi_square(counts: torch.Tensor, distribution: torch.Tensor) -> float:
    """The statistic; its mean is the number of cells less one."""
    expected = distribution.double() * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_uniforms_fill_the_unit_interval_evenly():
    values = uniforms(fold(3, 1), 200_000)
    counts = torch.histc(values, 100, 0, 1)
    assert chi_square(counts, torch.full((100,), 0.01)) < 99 + 5 * (2 * 99) ** 0.5
    assert values.min() > 0 and values.max() < 1


def test_neighbouring_keys_are_unrelated():
    a, b = uniforms(fold(3, 1), 50_000), uniforms(fold(3, 2), 50_000)
    assert abs(torch.corrcoef(torch.stack([a, b]))[0, 1]) < 0.02
    first = torch.tensor([uniform(fold(9, Purpose.ACCEPT, i, 0)) for i in range(20_000)])
    assert chi_square(torch.histc(first, 20, 0, 1), torch.full((20,), 0.05)) < 19 + 5 * (2 * 19) ** 0.5


def test_a_prefix_of_the_noise_does_not_depend_on_how_much_is_asked():
    assert torch.equal(uniforms(5, 10), uniforms(5, 1000)[:10])


def test_race_draws_from_the_distribution_and_fails_for_another():
    distribution = torch.tensor([0.5, 0.2, 0.0, 0.2, 0.1])
    drawn = torch.tensor([race(distribution, fold(1, i))[0] for i in range(20_000)])
    counts = torch.bincount(drawn, minlength=5)
    assert counts[2] == 0
    kept = distribution > 0
    assert chi_square(counts[kept], distribution[kept]) < 3 + 5 * 6**0.5
    other = torch.tensor([0.47, 0.23, 0.2, 0.1])  # power: three points off must show
    assert chi_square(counts[kept], other) > 3 + 5 * 6**0.5


def test_race_of_two_is_drawing_without_replacement():
    distribution = torch.tensor([0.6, 0.3, 0.1])
    pairs = [tuple(race(distribution, fold(2, i), 2)) for i in range(20_000)]
    cells = list(itertools.permutations(range(3), 2))
    expected = torch.tensor([distribution[a] * distribution[b] / (1 - distribution[a]) for a, b in cells])
    counts = torch.tensor([pairs.count(cell) for cell in cells])
    assert chi_square(counts, expected) < 5 + 5 * 10**0.5


def test_race_returns_only_tokens_with_mass():
    assert sorted(race(torch.tensor([0.0, 0.5, 0.0, 0.5]), 7, 4)) == [1, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # native kernels, and PyTorch
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("entries", [[0.0] * 3, [torch.nan] * 3, [0.2, torch.nan, 0.5, 0.3], [0.5, torch.inf, 0.5]])
def test_race_refuses_what_is_no_distribution(entries, count, dtype):
    with pytest.raises(NumericsError, match="no mass, or holds NaN"):
        race(torch.tensor(entries, dtype=dtype), 1, count)


def test_flips_are_certain_at_the_ends():
    for root in range(200):
        assert not KeyedCoins(1, root).flip(0.0, 0)
        assert KeyedCoins(1, root).flip(1.0, 0)


def test_coupled_drafter_draws_what_the_target_draws_and_an_uncoupled_one_does_not():
    distribution = torch.full((50,), 0.02)
    target = [KeyedCoins(4, root).draw(distribution, depth=2) for root in range(100)]
    assert [KeyedDraftCoins(4, root, True).draw(distribution, 2, 5)[0] for root in range(100)] == target
    apart = [KeyedDraftCoins(4, root, False).draw(distribution, 2, 5)[0] for root in range(100)]
    assert sum(a == b for a, b in zip(apart, target, strict=True)) < 15


def test_the_targets_draw_belongs_to_the_absolute_position():
    distribution = torch.full((50,), 0.02)
    assert KeyedCoins(4, 10).draw(distribution, depth=3) == KeyedCoins(4, 13).draw(distribution, depth=0)


def test_the_noise_is_that_of_the_page():
    """docs/proof.md tells an independent program how to draw; `lab/fuzz/keyed_draw.py` is one."""
    for seed, position in ((0, 0), (1, 7), (2**63 + 5, 12_345), (2**64 - 1, 3)):
        assert torch.equal(uniforms(target_key(seed, position), 50), torch.from_numpy(noise(seed, position, 50)))


def test_coins_of_a_round_are_keyed_by_its_pending_token():
    seq = one_sequence([5, 6, 7, 8], seed=3)
    seq.coupled = True
    distribution, drafting, judging = torch.full((1000,), 1e-3), draft_coins(seq), verifier_coins(seq)
    for depth in range(5):
        drawn = judging.draw(distribution, depth)
        assert [drawn] == drafting.draw(distribution, depth, 0)
        assert [drawn] == race(distribution, target_key(seq.seed, len(seq.tokens) + depth))
    seq.coupled = False
    first = draft_coins(seq).draw(distribution, 0, 0)
    seq.extend(9)
    assert draft_coins(seq).draw(distribution, 0, 0) != first


@pytest.mark.parametrize("coupled", [False, True])
def test_the_keys_of_a_chain_are_those_of_its_draws(coupled):
    coins, distribution = KeyedDraftCoins(5, 17, coupled), torch.full((1000,), 1e-3)
    for i, key in enumerate(coins.chain_keys(6)):
        assert race(distribution, key) == coins.draw(distribution, i, i)
