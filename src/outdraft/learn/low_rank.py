"""Low rank: a matrix learns as W = W0 + B A, a change of rank r at most, so the optimiser remembers little.

    backward: dW [M, N] -> dB = dW A^T [M, r], dA = B^T dW [r, N] -> a step of A and B -> W0 + B A into the module

By the chain rule these are the gradients of A and B themselves, so the network need not know of them, and everything
behind it sees whole weights. The gradient of W is made whole, too: it is the optimiser that becomes small, not a pass.

Hu et al., "LoRA: low-rank adaptation of large language models", 2021, https://arxiv.org/abs/2106.09685. B begins at
zero, and A with rows of length 1, nearly. Their alpha is r here, and rates do what it is for: few directions have to go
farther than all of them, so A and B learn at many times the rates of a whole draft, which then serve for any rank. How
many falls with the root of r, as alpha does in Kalajdzievski, "A rank stabilization scaling factor for fine-tuning
with LoRA", 2023, https://arxiv.org/abs/2312.03732. How large it is was tried (docs/adaptation.md).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.learn.step import Optimizer

_FASTER = 20.0  # times the rates, at rank 1


class LowRank:
    """In the place of an `Optimizer`: matrices and tables learn by two factors each, vectors whole.

    `named`: the parameters that learn, with their names. `began`: W0 by name, which is kept and not copied. A matrix
    with a side of `rank` or less learns whole. `lr`, `muon_lr`, `vocab_size`: as an `Optimizer` has them, for A and B.
    """

    def __init__(
        self,
        named: Iterable[tuple[str, nn.Parameter]],
        began: Mapping[str, Tensor],
        *,
        rank: int,
        lr: float,
        muon_lr: float,
        vocab_size: int = 0,
        seed: int = 0,
    ) -> None:
        dice, learned = torch.Generator().manual_seed(seed), list[tuple[str, nn.Parameter]]()
        self._factors: list[tuple[nn.Parameter, Tensor, nn.Parameter, nn.Parameter]] = []  # W, W0, B, A
        for name, weight in named:
            if weight.dim() != 2 or min(weight.shape) <= rank:
                learned.append((name, weight))
                continue
            a = nn.Parameter((torch.randn(rank, weight.shape[1], generator=dice) / weight.shape[1] ** 0.5).to(weight))
            b = nn.Parameter(weight.new_zeros(weight.shape[0], rank))
            self._factors.append((weight, began[name], b, a))
            learned += [(f"{name}.b", b), (f"{name}.a", a)]
        shares = {one: _FASTER / rank**0.5 for *_, b, a in self._factors for one in (b, a)}
        self._optimizer = Optimizer(
            learned, lr=lr, muon_lr=muon_lr, weight_decay=0.0, vocab_size=vocab_size, shares=shares
        )

    @torch.no_grad()
    def update(self, factor: float, clip: float) -> bool:
        """One step with gradients of this norm at most. False: a gradient is no finite number, and nothing changed."""
        for weight, _, b, a in self._factors:
            slope = weight.grad
            b.grad, a.grad = (None, None) if slope is None else (slope @ a.T, b.T @ slope)
        is_sound = self._optimizer.update(factor, clip)
        if is_sound:
            self._write()
        return is_sound

    def clear(self) -> None:
        """Drop all gradients, so that their memory is free until the next pass."""
        self._optimizer.clear()
        for weight, *_ in self._factors:
            weight.grad = None

    def state(self) -> list[dict[str, Any]]:
        """Everything that a resumed run needs: the factors, and what is remembered of them."""
        return [{"factors": [(b.detach(), a.detach()) for *_, b, a in self._factors]}, *self._optimizer.state()]

    @torch.no_grad()
    def load_state(self, state: list[dict[str, Any]]) -> None:
        """Take over a saved state, and write what it learned into the module."""
        for (*_, b, a), (saved_b, saved_a) in zip(self._factors, state[0]["factors"], strict=True):
            b.copy_(saved_b)
            a.copy_(saved_a)
        self._optimizer.load_state(state[1:])
        self._write()

    def _write(self) -> None:
        for weight, began, b, a in self._factors:
            torch.addmm(began, b, a, out=weight)
