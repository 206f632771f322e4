"""Every loss lowers its own metric, is zero at equality, and agrees with the arithmetic."""

import pytest
import torch

from outdraft.training.losses import LOSSES, acceptance, forward_kl, soft_cross_entropy, total_variation


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_descending_on_a_loss_lowers_it_and_raises_acceptance(name):
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(12, 9, generator=generator) * 2
    q = torch.randn(12, 9, generator=generator).requires_grad_()
    before = float(LOSSES[name](p, q).detach()), float(acceptance(p, q).detach())
    optimizer = torch.optim.Adam([q], lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        LOSSES[name](p, q).backward()
        optimizer.step()
    assert float(LOSSES[name](p, q)) < before[0]
    assert float(acceptance(p, q)) > before[1]


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"soft_cross_entropy"}))
def test_a_distance_is_zero_at_equality(name):
    p = torch.randn(5, 7)
    assert float(LOSSES[name](p, p)) == pytest.approx(0, abs=1e-6)


def test_the_identities():
    p, q = torch.randn(6, 11), torch.randn(6, 11)
    assert float(acceptance(p, q) + total_variation(p, q)) == pytest.approx(1, abs=1e-5)
    entropy = -(p.softmax(-1) * p.log_softmax(-1)).sum(-1).mean()
    assert float(soft_cross_entropy(p, q) - entropy) == pytest.approx(float(forward_kl(p, q)), abs=1e-5)
