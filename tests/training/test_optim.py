"""The optimiser's shares, and the compiled activation's own gradient."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.training.compilable import _bend
from outdraft.training.config import LoopConfig
from outdraft.training.optim import Optimizer
from outdraft.training.team import Team


class _Adding(Team):  # Team is frozen and slotted; a subclass has a dict
    """A worker of two whose sums are made by hand: it keeps what it would have sent."""

    def add_up(self, values: Tensor) -> Tensor:
        self.sent.append(values)
        return values


def test_two_workers_share_muons_work():
    torch.manual_seed(0)
    shapes = [(24, 16), (16, 16), (8, 16), (16, 40)]
    grads = [torch.randn(shape) for shape in shapes]

    def directions(rank: int, size: int) -> list[Tensor]:
        named = [(f"w{i}", nn.Parameter(torch.zeros(shape))) for i, shape in enumerate(shapes)]
        team = _Adding(rank=rank, size=size)
        object.__setattr__(team, "sent", [])
        optimizer = Optimizer(named, LoopConfig(steps=1), team)
        return [x.clone() for x in optimizer._directions(grads).values()]

    alone, first, second = directions(0, 1), directions(0, 2), directions(1, 2)
    for whole, a, b in zip(alone, first, second, strict=True):
        assert bool(a.any()) != bool(b.any())  # each matrix belongs to one worker
        assert torch.equal(whole, a + b)


def test_the_gates_gradient_is_autograds():
    torch.manual_seed(1)
    up = torch.randn(5, 12, dtype=torch.float32, requires_grad=True)
    weight = torch.randn(5, 6)
    gate, value = up.split(6, 1)
    (F.silu(gate) * value * weight).sum().backward()
    expected, up.grad = up.grad, None
    out = _bend(up, False)
    (out * weight).sum().backward()
    assert torch.allclose(up.grad, expected, atol=1e-5)
