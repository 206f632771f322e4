"""An LSTM's rows one behind the other, with gradients that read its weights once a row and add to them once a text.

    forward    gates_t = given_t + W h_{t-1};  c_t = f c_{t-1} + i g;  h_t = o tanh(c_t)
    backward   from the last row to the first, what each row's gates owe; W's gradient is one product over all rows

Backpropagation through time: Werbos, 1990, https://doi.org/10.1109/5.58337. A graph of single steps would add a matrix
of W's size to its gradient for every row, which takes most of the time where few texts run beside each other.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

T = TypeVar("T")


def without_autocast(pass_: Callable[..., T]) -> Callable[..., T]:
    """The same function, which computes in its arguments' dtype."""

    @wraps(pass_)
    def whole(ctx: Any, first: Tensor, *rest: Tensor) -> T:
        with torch.autocast(first.device.type, enabled=False):
            return pass_(ctx, first, *rest)

    return whole


class LstmScan(torch.autograd.Function):
    """`scan(given [n, L, 4 D], weight [4 D, D], h [n, D], c [n, D], goes_on [n, L])` -> states [n, L, 2, D]: h and c.

    Gates in, forget, out, and what comes in. `goes_on`: 1, or 0 for rows before which there is no state. All of one
    dtype, which is computed in also under autocast.
    """

    @staticmethod
    @without_autocast
    def forward(ctx: Any, given: Tensor, weight: Tensor, h: Tensor, c: Tensor, goes_on: Tensor) -> Tensor:
        width, along = weight.shape[1], weight.t()
        gates, states = torch.empty_like(given), given.new_empty(*given.shape[:2], 2, width)
        before = torch.empty_like(states)  # what each row reads
        for t in range(given.shape[1]):
            stays = goes_on[:, t, None]
            before[:, t, 0], before[:, t, 1] = h * stays, c * stays
            raw = torch.addmm(given[:, t], before[:, t, 0], along)
            raw[:, : 3 * width].sigmoid_()
            raw[:, 3 * width :].tanh_()
            gates[:, t] = raw
            enters, keeps, leaves, new = raw.chunk(4, -1)
            c = keeps * before[:, t, 1] + enters * new
            h = leaves * c.tanh()
            states[:, t, 0], states[:, t, 1] = h, c
        ctx.save_for_backward(gates, states, before, weight, goes_on)
        return states

    @staticmethod
    @without_autocast
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor | None, ...]:
        gates, states, before, weight, goes_on = ctx.saved_tensors
        (owed,) = grads
        width, raw = weight.shape[1], torch.empty_like(gates)
        dh, dc = torch.zeros_like(owed[:, 0, 0]), torch.zeros_like(owed[:, 0, 0])
        bent = states[:, :, 1].tanh()
        slopes = gates * (1 - gates)
        slopes[..., 3 * width :] = 1 - gates[..., 3 * width :] ** 2
        for t in range(gates.shape[1] - 1, -1, -1):
            enters, keeps, leaves, new = gates[:, t].chunk(4, -1)
            dh = dh + owed[:, t, 0]
            dc = dc + owed[:, t, 1] + dh * leaves * (1 - bent[:, t] ** 2)
            due = torch.cat((dc * new, dc * before[:, t, 1], dh * bent[:, t], dc * enters), -1) * slopes[:, t]
            raw[:, t] = due
            stays = goes_on[:, t, None]
            dh, dc = (due @ weight) * stays, dc * keeps * stays
        rows = raw.flatten(0, 1)
        return raw, rows.t() @ before[:, :, 0].flatten(0, 1), dh, dc, None
