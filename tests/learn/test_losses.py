"""Every loss has the gradient that differences show, lowers its own metric, and agrees with the arithmetic."""

import pytest
import torch

from outdraft.drafters.shared.learning.states import smooth_l1
from outdraft.learn.losses import (
    LOSSES,
    forward_kl,
    hybrid,
    log_acceptance,
    logs,
    mixed,
    soft_cross_entropy,
    total_variation,
)
from outdraft.options.errors import ConfigError

DISTANCES = sorted(set(LOSSES) - {"soft_cross_entropy", "top_cross_entropy", "cross_entropy", "sequence_kd"})


def random(rows, vocab=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    p, q = (torch.randn(rows, vocab, generator=generator, dtype=torch.float64) * 2 for _ in range(2))
    return p, q, torch.randint(vocab, (rows,), generator=generator)


def acceptance(p, q):
    return torch.minimum(p.softmax(-1), q.softmax(-1)).sum(-1).mean()


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"hybrid"}))
def test_the_gradient_is_that_of_differences(name):
    p, q, tokens = random(5)
    q.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: LOSSES[name](logs(p), logs(x), tokens), (q,))


def test_the_hybrids_weight_is_a_constant_for_its_gradient():
    p, q, tokens = random(5)
    q.requires_grad_()
    far = total_variation(logs(p), logs(q), tokens)
    weight = (-3 * (1 - far)).exp().detach()
    expected = weight * forward_kl(logs(p), logs(q), tokens) + (1 - weight) * far
    ours = hybrid(logs(p), logs(q), tokens)
    torch.testing.assert_close(ours, expected)
    grads = [torch.autograd.grad(one.sum(), q, retain_graph=True)[0] for one in (ours, expected)]
    torch.testing.assert_close(*grads)


def test_the_hybrids_gradient_is_that_of_differences_at_a_fixed_weight():
    """Of its formula, written out here; the weight is that of where the gradient is taken."""
    p, q, tokens = random(5)
    q.requires_grad_()
    (seen,) = torch.autograd.grad(hybrid(logs(p), logs(q), tokens).sum(), q)
    q, p, step = q.detach(), p.softmax(-1), 1e-6
    weight = (-3 * torch.minimum(p, q.softmax(-1)).sum(-1)).exp()

    def formula(logits):
        other = logits.softmax(-1)
        far = (p * (p / other).log()).sum(-1), 1 - torch.minimum(p, other).sum(-1)
        return float((weight * far[0] + (1 - weight) * far[1]).sum())

    moved = [step * one.view_as(q) for one in torch.eye(q.numel(), dtype=q.dtype)]
    differences = [(formula(q + one) - formula(q - one)) / (2 * step) for one in moved]
    torch.testing.assert_close(seen.flatten(), torch.tensor(differences, dtype=q.dtype), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_descending_on_a_loss_lowers_it(name):
    p, q, tokens = random(12)
    q.requires_grad_()

    def told():
        return LOSSES[name](logs(p), logs(q), tokens).mean()

    before = float(told().detach()), float(acceptance(p, q).detach())
    optimizer = torch.optim.Adam([q], lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        told().backward()
        optimizer.step()
    assert float(told().detach()) < before[0]
    if name not in ("cross_entropy", "sequence_kd"):  # which know one token of p
        assert float(acceptance(p, q).detach()) > before[1]


@pytest.mark.parametrize("name", DISTANCES)
def test_a_distance_is_zero_at_equality(name):
    p, _, tokens = random(5)
    assert float(LOSSES[name](logs(p), logs(p), tokens).abs().max()) < 1e-9


def test_the_likeliest_tokens_alone_count():
    p, q, tokens = random(6, vocab=30)
    best = p.topk(10, -1).indices
    mass = (p.softmax(-1) * logs(q)).gather(-1, best).sum(-1)
    torch.testing.assert_close(LOSSES["top_cross_entropy"](logs(p), logs(q), tokens), -mass)
    few = random(6, vocab=5)
    torch.testing.assert_close(
        LOSSES["top_cross_entropy"](logs(few[0]), logs(few[1]), tokens),
        soft_cross_entropy(logs(few[0]), logs(few[1]), tokens),
    )


def test_the_identities():
    p, q, tokens = random(6)
    log_p, log_q = logs(p), logs(q)
    assert float(acceptance(p, q) + total_variation(log_p, log_q, tokens).mean()) == pytest.approx(1)
    entropy = -(log_p.exp() * log_p).sum(-1)
    torch.testing.assert_close(soft_cross_entropy(log_p, log_q, tokens) - entropy, forward_kl(log_p, log_q, tokens))
    torch.testing.assert_close(log_acceptance(log_p, log_q, tokens), -(1 - total_variation(log_p, log_q, tokens)).log())


def test_a_weighted_sum():
    p, q, tokens = random(4)
    both = mixed({"forward_kl": 0.5, "total_variation": 2.0}).rows(logs(p), logs(q), tokens)
    parts = (LOSSES[name](logs(p), logs(q), tokens) for name in ("forward_kl", "total_variation"))
    torch.testing.assert_close(both, 0.5 * next(parts) + 2.0 * next(parts))
    with pytest.raises(ConfigError, match="did you mean 'forward_kl'"):
        mixed({"forward_k": 1.0})
    with pytest.raises(ConfigError, match="nothing would be learned"):
        mixed({"forward_kl": 0.0})


def test_smooth_l1_is_its_formula_and_its_gradient_that_of_differences():
    generator = torch.Generator().manual_seed(2)
    guessed, true = (torch.randn(4, 6, generator=generator, dtype=torch.float64) * 2 for _ in range(2))
    far = (guessed - true).abs()
    assert 4 < int((far < 1).sum()) < 20, "both branches are looked at"
    torch.testing.assert_close(smooth_l1(guessed, true), torch.where(far < 1, far**2 / 2, far - 0.5).mean(-1))
    assert torch.autograd.gradcheck(lambda x: smooth_l1(x, true), (guessed.requires_grad_(),))


def test_descending_on_smooth_l1_brings_states_together():
    generator = torch.Generator().manual_seed(2)
    guessed, true = (torch.randn(8, 6, generator=generator) * 2 for _ in range(2))
    guessed.requires_grad_()
    before = float((guessed - true).detach().abs().mean())
    optimizer = torch.optim.Adam([guessed], lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        smooth_l1(guessed, true).sum().backward()
        optimizer.step()
    assert float((guessed - true).detach().abs().mean()) < before / 4


def test_losses_differ_by_what_they_compare():
    p, q, tokens = random(4)
    both = mixed({"forward_kl": 0.5, "smooth_l1": 2.0})
    assert both.beside == {"smooth_l1": 2.0}
    torch.testing.assert_close(both.rows(logs(p), logs(q), tokens), 0.5 * forward_kl(logs(p), logs(q), tokens))
    only = mixed({"smooth_l1": 1.0})
    assert float(only.rows(logs(p), logs(q), tokens).abs().sum()) == 0
    with pytest.raises(ConfigError, match="did you mean 'smooth_l1'"):
        mixed({"smooth_l2": 1.0})
    with pytest.raises(ConfigError, match="nothing would be learned"):
        mixed({"smooth_l1": 0.0})
