"""What learns at low rank: exact gradients, changes of that rank alone, and a step that is left out."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from outdraft.learn.low_rank import LowRank
from outdraft.learn.save import learned

RATES = {"lr": 2e-3, "muon_lr": 3e-3}
RANK = 2


class Net(nn.Module):
    """A table, two matrices, a narrow one, and a norm."""

    def __init__(self):
        super().__init__()
        dice = torch.Generator().manual_seed(1)
        shapes = {"embedding": (9, 6), "up": (7, 6), "down": (6, 7), "narrow": (6, RANK), "norm": (6,)}
        for name, shape in shapes.items():
            made = torch.randn(shape, generator=dice, dtype=torch.float64)
            self.register_parameter(name, nn.Parameter(made))

    def loss(self, **other):
        """Of weights in the place of its own."""
        own = {**dict(self.named_parameters()), **other}
        x = own["embedding"][torch.tensor([1, 4, 8])] * own["norm"]
        return (torch.tanh(x @ own["up"].T) @ own["down"].T + x @ own["narrow"] @ own["narrow"].T).square().sum()


def made(net, **rates):
    began = {name: one.clone() for name, one in learned(net).items()}
    return began, LowRank(net.named_parameters(), began, rank=RANK, vocab_size=9, **{**RATES, **rates})


def step(net, optimizer, clip=1e9):
    optimizer.clear()
    net.loss().backward()
    return optimizer.update(1.0, clip)


def test_gradients_of_the_factors_are_those_through_the_product():
    net = Net()
    began, optimizer = made(net)
    for _ in range(3):
        step(net, optimizer)
    names = ("embedding", "up", "down")
    factors = [
        (b.detach().clone().requires_grad_(), a.detach().clone().requires_grad_()) for *_, b, a in optimizer._factors
    ]
    assert len(factors) == 3 and all(b.abs().max() > 0 for b, _ in factors)
    net.loss(**{name: began[name] + b @ a for name, (b, a) in zip(names, factors, strict=True)}).backward()
    step(net, optimizer)
    for (b, a), (*_, own_b, own_a) in zip(factors, optimizer._factors, strict=True):
        assert torch.allclose(own_b.grad, b.grad, rtol=1e-9) and torch.allclose(own_a.grad, a.grad, rtol=1e-9)


@pytest.mark.parametrize("muon_lr", [0.0, 3e-3])
def test_a_change_has_that_rank_and_small_ones_are_whole(muon_lr):
    net = Net()
    began, optimizer = made(net, muon_lr=muon_lr)
    before = net.loss().item()
    assert all(torch.equal(one, began[name]) for name, one in learned(net).items()), "it begins at what was there"
    for _ in range(20):
        assert step(net, optimizer)
    assert net.loss().item() < before
    for name, one in learned(net).items():
        change = one - began[name]
        assert change.abs().max() > 0, name
        if change.dim() == 2:
            assert torch.linalg.matrix_rank(change, rtol=1e-9) == RANK, name
    assert not any(weight is net.narrow for weight, *_ in optimizer._factors)


def test_factors_learn_at_a_multiple_of_the_rate_that_falls_with_the_root_of_the_rank():
    net = Net()
    began, optimizer = made(net, muon_lr=0.0)
    step(net, optimizer)
    moved = {tuple(b.shape): b.abs().max().item() for *_, b, _ in optimizer._factors}
    assert moved == pytest.approx(dict.fromkeys(moved, 20 / RANK**0.5 * RATES["lr"]), rel=1e-3)
    assert (net.norm - began["norm"]).abs().max().item() == pytest.approx(RATES["lr"], rel=1e-3), "a norm at the rate"


def test_the_optimiser_remembers_the_factors_alone():
    net = Net()
    _, optimizer = made(net)
    step(net, optimizer)
    whole = {tuple(one.shape) for one in net.parameters() if one.dim() == 2} - {(6, RANK)}
    held = [one for part in optimizer.state()[1:] for its in part["state"].values() for one in its.values()]
    assert held and not whole & {tuple(one.shape) for one in held}


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_gradient_that_is_no_number_changes_nothing(bad):
    net = Net()
    _, optimizer = made(net)
    step(net, optimizer)
    optimizer.clear()
    assert all(one.grad is None for one in net.parameters())
    net.loss().backward()
    net.up.grad[0, 0] = bad
    before = {name: one.clone() for name, one in learned(net).items()}
    assert not optimizer.update(1.0, 1.0)
    assert all(torch.equal(one, before[name]) for name, one in learned(net).items())
    assert step(net, optimizer) and not torch.equal(net.up, before["up"])


def test_a_step_is_cut_to_its_norm_and_a_matrix_without_a_gradient_stays():
    net = Net()
    began, optimizer = made(net)
    optimizer.clear()
    net.loss(up=began["up"]).backward()
    optimizer.update(1.0, clip=0.5)
    slopes = [one.grad for *_, b, a in optimizer._factors for one in (b, a) if one.grad is not None]
    slopes += [net.narrow.grad, net.norm.grad]
    assert sum(one.square().sum() for one in slopes).sqrt().item() == pytest.approx(0.5, rel=1e-4)
    assert torch.equal(net.up, began["up"]) and not torch.equal(net.down, began["down"])


def test_a_resumed_run_goes_on_as_if_it_had_not_stopped():
    first, second = Net(), Net()
    (_, one), (_, other) = made(first), made(second, seed=7)
    for _ in range(3):
        step(first, one)
    second.load_state_dict(first.state_dict())
    second.up.data.zero_()  # it is written again
    other.load_state(deepcopy(one.state()))
    for _ in range(2):
        step(first, one)
        step(second, other)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
