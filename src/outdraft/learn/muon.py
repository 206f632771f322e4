"""Muon for matrices (Jordan 2024, https://kellerjordan.github.io/posts/muon/).

A step is as large as AdamW's (Liu et al. 2025, https://arxiv.org/abs/2502.16982). PyTorch's own makes matrices
orthogonal in bfloat16 everywhere. On a processor without bfloat16 products that takes 20 to 50 times as long as in
float32, and nine tenths of a training step; on one with them (AVX-512 BF16, AMX) 0.4 times. So the processor decides.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

_MOMENTUM = 0.95
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # of a singular value: a s + b s^3 + c s^5, five times, is about 1
_STEPS = 5


class Muon(torch.optim.Optimizer):
    """Nesterov's momentum of each matrix, made nearly orthogonal. `weight_decay` is decoupled, as in AdamW."""

    def __init__(self, params: Iterable[Any], *, lr: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient."""
        assert closure is None, "a step is made of gradients that are there"
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                mean = state["momentum_buffer"]
                mean.lerp_(matrix.grad, 1 - _MOMENTUM)
                update = orthogonal(matrix.grad.lerp(mean, _MOMENTUM))
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * 0.2 * max(matrix.shape) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """[M, N] -> [M, N]: the same row and column space, singular values of about 1 (Newton and Schulz's iteration)."""
    a, b, c = _POLYNOMIAL
    x = matrix.to(_format(matrix.device))
    is_tall = x.shape[0] > x.shape[1]
    x = x.T if is_tall else x
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(_STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x


def _format(device: torch.device) -> torch.dtype:
    """What products are fast in: bfloat16 but on a CPU that has no instructions for it."""
    slow = device.type == "cpu" and not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return torch.float32 if slow else torch.bfloat16
