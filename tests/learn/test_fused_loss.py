"""The kernels' losses are PyTorch's: values, masses and gradients, by themselves and in a comparison."""

import pytest
import torch

from outdraft.kernels.library import KINDS, library
from outdraft.kernels.row_losses import log_sums
from outdraft.kernels.threads import torch_threads
from outdraft.learn.fused_loss import fused_loss
from outdraft.learn.losses import LOSSES, Weighted, logs

KNOWN = (
    "forward_kl",
    "soft_cross_entropy",
    "total_variation",
    "log_acceptance",
    "hybrid",
    "cross_entropy",
    "sequence_kd",
)
NATIVE = library()
HERE = [kind for kind in KINDS if NATIVE is not None and NATIVE.od_has_kernels(kind.encode())]
pytestmark = pytest.mark.skipif(NATIVE is None, reason="the kernels are not built")


def rows(size, dtype=torch.float32, n=5):
    dice = torch.Generator().manual_seed(size)
    p = torch.randn(n + 1, size, generator=dice) * 3
    at = torch.tensor([3, 1, 0, 5, 1])[:n]
    q = (p[at] + torch.randn(n, size, generator=dice)).to(dtype)
    q[0] = p[3]  # what is guessed right: equal probabilities everywhere
    said = torch.tensor([0, -1, size - 1, size // 2, 0])[:n]
    return p, torch.logsumexp(p, -1) + 0.3, at, q.requires_grad_(), said, torch.tensor([1.0, 0.5, 2.0, 0.0, 1.0])[:n]


def by_torch(p, whole, at, q, said, heavy, loss):
    log_p, log_q = logs(p.double()[at]), logs(q.double())
    mass = torch.minimum((p.double() - whole[:, None])[at], log_q).exp().sum(-1)
    return (loss(log_p, log_q, said) * heavy).sum(), mass


@pytest.mark.parametrize("kind", HERE)
@pytest.mark.parametrize("size", [1, 15, 16, 97, 1000])
@pytest.mark.parametrize("name", [*KNOWN, "mix"])
def test_the_kernels_say_what_pytorch_says(size, name, kind, monkeypatch):
    monkeypatch.setenv("OUTDRAFT_KERNELS", kind)
    mix = {"hybrid": 0.4, "cross_entropy": 0.1, "sequence_kd": 0.2, "forward_kl": 1}
    loss = Weighted(mix if name == "mix" else {name: 0.7})
    p, whole, at, q, said, heavy = rows(size)
    found = fused_loss(p, whole, at, q, said, heavy, loss)
    assert found is not None
    (found[0] * 3).backward()
    gradient, q.grad = q.grad, None
    far, mass = by_torch(p, whole, at, q, said, heavy, loss)
    (far * 3).backward()
    torch.testing.assert_close(found[0].double(), far, rtol=2e-5, atol=2e-5)
    torch.testing.assert_close(found[1].double(), mass, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient, q.grad, rtol=1e-4, atol=2e-6)


def test_the_number_of_threads_changes_no_bit():
    def found(threads):
        given = rows(1000)
        with torch_threads(threads):
            far, mass = fused_loss(*given, Weighted({"hybrid": 1.0}))
            far.backward()
            return far.detach(), mass, given[3].grad, log_sums(given[0])

    torch.testing.assert_close(found(1), found(3), rtol=0, atol=0)


def test_logits_in_bfloat16_get_their_gradient_in_it():
    p, whole, at, q, said, heavy = rows(1000, torch.bfloat16)
    loss = Weighted({"forward_kl": 1.0, "cross_entropy": 0.5})
    far, mass = fused_loss(p, whole, at, q, said, heavy, loss)
    far.backward()
    gradient, q.grad = q.grad, None
    theirs, their_mass = by_torch(p, whole, at, q, said, heavy, loss)
    theirs.backward()
    assert gradient.dtype == torch.bfloat16
    torch.testing.assert_close(gradient, q.grad, rtol=0.01, atol=1e-6)
    torch.testing.assert_close((far.double(), mass.double()), (theirs, their_mass), rtol=2e-5, atol=2e-5)


def test_a_loss_that_the_kernels_do_not_know_is_left_to_pytorch():
    given = rows(97)
    for name in LOSSES.keys() - {*KNOWN}:
        assert fused_loss(*given, Weighted({name: 1.0})) is None
    assert fused_loss(*given, lambda log_p, log_q, tokens: log_q.sum(-1)) is None


@pytest.mark.parametrize("change", ["double", "half", "learns", "apart"])
def test_what_the_kernels_cannot_read_is_left_to_pytorch(change):
    p, whole, at, q, said, heavy = rows(96)
    if change == "double":
        q = q.detach().double()
    elif change == "half":
        q = q.detach().half()
    elif change == "learns":
        heavy.requires_grad_()
    else:
        q = q.detach().repeat_interleave(2, -1)[:, ::2]
    assert fused_loss(p, whole, at, q, said, heavy, Weighted({"forward_kl": 1.0})) is None


def test_the_logarithm_of_no_acceptance_is_left_to_pytorch():
    p, q = torch.tensor([[0.0, 200.0]]), torch.tensor([[200.0, 0.0]], requires_grad=True)
    given = p, torch.logsumexp(p, -1), torch.tensor([0]), q, torch.tensor([0]), torch.ones(1)
    assert fused_loss(*given, Weighted({"log_acceptance": 1.0})) is None
    far, mass = fused_loss(*given, Weighted({"total_variation": 1.0}))
    assert (far.item(), mass.item()) == (1.0, 0.0)


def test_what_is_no_number_stays_none():
    p, whole, at, q, said, heavy = rows(97)
    q = q.detach()
    q[1, 3] = torch.nan
    far, mass = fused_loss(p, whole, at, q.requires_grad_(), said, heavy, Weighted({"forward_kl": 1.0}))
    far.backward()
    assert far.isnan()
    assert mass.isnan().tolist() == [False, True, False, False, False]
    assert not q.grad.isfinite().all()


@pytest.mark.parametrize("name", ["total_variation", "log_acceptance", "cross_entropy"])
def test_what_neither_may_say_costs_nothing_where_no_logarithm_of_it_is_asked_for(name):
    p, whole, at, q, said, heavy = rows(97)
    q = q.detach()
    p[:, 50:60] = q[:, 50:60] = -torch.inf
    loss = Weighted({name: 1.0})
    far, _ = fused_loss(p, whole, at, q.requires_grad_(), said, heavy, loss)
    far.backward()
    assert far.item() == pytest.approx(by_torch(p, whole, at, q, said, heavy, loss)[0].item(), rel=1e-5)
    assert q.grad.isfinite().all()


def test_nothing_is_learned_where_no_gradient_is_wanted():
    p, whole, at, q, said, heavy = rows(97)
    with torch.no_grad():
        far, _ = fused_loss(p, whole, at, q, said, heavy, Weighted({"forward_kl": 1.0}))
    assert not far.requires_grad
    assert far.item() == pytest.approx(
        by_torch(p, whole, at, q, said, heavy, Weighted({"forward_kl": 1.0}))[0].item(), rel=1e-5
    )


def test_no_loss_at_all_is_nothing():
    given = rows(97)
    far, _ = fused_loss(*given, Weighted({}))
    far.backward()
    assert far.item() == 0
    assert not given[3].grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("size", [1, 17, 1000])
def test_what_a_row_sums_up_to(size, dtype):
    logits = (torch.randn(5, size, generator=torch.Generator().manual_seed(size)) * 9).to(dtype)
    logits[2, 0] = 500
    torch.testing.assert_close(log_sums(logits).double(), torch.logsumexp(logits.double(), -1), rtol=1e-6, atol=1e-6)
