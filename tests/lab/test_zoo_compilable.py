"""The compiled activation has autograd's own gradient."""

import torch
import torch.nn.functional as F

from lab.zoo.compilable import _bend


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
