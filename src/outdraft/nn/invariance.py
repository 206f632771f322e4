"""Find out how a matrix product must be cut so that a row's bits do not depend on how many rows are beside it.

Measured with torch 2.13 on CPU: eager products give one row other bits than several; oneDNN's packed product is stable
up to 32 rows, for some widths from 2 or 4 rows on; fixed tiles of 8 or 16 rows are stable. None of it is promised
anywhere, so each shape is tried, from the cheapest plan to the dearest; one row at a time is right by construction.

Ordinary data would not show a different order of summation in bfloat16, where rounding hides all but one case in
thousands. So the trial product is one whose exact result is 0: inputs come in pairs, scattered at random, that cancel
each other, and what comes out is nothing but the rounding errors of one particular order. The answer depends on shape,
type and the number of threads, not on weights.
"""

from functools import cache

import torch
from torch import Tensor

from outdraft.kernels.threads import num_threads, torch_threads
from outdraft.nn.linear import Linear, LinearMap, RowTile

_PLANS = (
    RowTile(most=32, least=1, packed=True),
    RowTile(most=32, least=2, packed=True),
    RowTile(most=32, least=4, packed=True),
    RowTile(most=8, least=8, packed=True),
    RowTile(most=32, least=1, packed=False),
    RowTile(most=4, least=4, packed=False),
    RowTile(most=8, least=8, packed=False),
    RowTile(most=16, least=16, packed=False),
    RowTile(most=1, least=1, packed=False),
)
_COUNTS = (2, 3, 4, 5, 8, 9, 12, 16, 17, 31, 32, 33)
_SMALL = 1 << 20  # weights up to this size are tried with every row count
_SHIFTS = ((1, 5), (7, 9), (11, 20))  # (first row, rows): the same rows at other addresses
_NOISE = 1 << 16  # random numbers that fill a weight over and over


def find_tile(linear: LinearMap) -> RowTile:
    """The cheapest plan under which this map's rows are independent, on one thread and on as many as a step may have.

    A step has one where the native kernels compute the target.
    """
    counts = tuple(sorted({1, num_threads()}))
    return _search(linear.shape, linear.bias is not None, linear.dtype, linear.device, counts)


@cache
@torch.no_grad()
def find_plain_tile(
    shape: tuple[int, int], bias: bool, dtype: torch.dtype, device: torch.device, threads: int
) -> RowTile:
    """The cheapest plan without packing on so many threads, for a weight [out, in] of another module."""
    found = _first_stable(Linear(shape[1], shape[0], bias, dtype, device), (threads,), packed=False)
    assert found is not None, "one row at a time is stable"
    return found


@cache  # the answer is a fact about the library and the machine
@torch.no_grad()
def _search(
    shape: tuple[int, int], bias: bool, dtype: torch.dtype, device: torch.device, counts: tuple[int, ...]
) -> RowTile:
    like = Linear(shape[1], shape[0], bias, dtype, device)
    found = _first_stable(like, counts, packed=True) or _first_stable(like, counts, packed=False)
    assert found is not None, "one row at a time is stable"
    return found


def _first_stable(like: Linear, counts: tuple[int, ...], *, packed: bool) -> RowTile | None:
    """The first plan of this sort that is stable on every number of threads; None if none is, or nothing packs."""
    trial, rows = cancelling_linear(like), cancelling_rows(like, max(_COUNTS))
    if packed:
        trial.pack()
        if trial.packed is None:
            return None
    return next((plan for plan in _PLANS if plan.packed == packed and _holds(trial, plan, rows, counts)), None)


def _holds(trial: Linear, plan: RowTile, rows: Tensor, counts: tuple[int, ...]) -> bool:
    for count in counts:
        with torch_threads(count):
            if not is_invariant(trial, plan, rows):
                return False
    return True


def is_invariant(linear: Linear, plan: RowTile, rows: Tensor) -> bool:
    """Whether every row gets the bits that it gets alone, for all tried row counts. rows [N, in]."""
    alone = torch.cat([linear.tiled(rows[i : i + 1], plan) for i in range(len(rows))])  # [N, out]
    counts = range(2, len(rows) + 1) if linear.weight.numel() <= _SMALL else _COUNTS
    spans = [(0, count) for count in counts] + [(first, first + count) for first, count in _SHIFTS]
    return all(torch.equal(linear.tiled(rows[i:j], plan), alone[i:j]) for i, j in spans)


def cancelling_linear(like: Linear) -> Linear:
    """A map of the same shape where paired inputs have the same weights; its bias is as small as rounding errors."""
    num_out, num_in = like.weight.shape
    trial = Linear(num_in, num_out, like.bias is not None, like.weight.dtype, like.weight.device)
    first, second = _pairs(num_in)
    half = len(first)
    noise = _noise(_NOISE)
    copies = -(-num_out * half // _NOISE)
    block = noise.to(like.weight.dtype).repeat(copies)[: num_out * half].view(num_out, half).to(like.weight.device)
    with torch.no_grad():
        trial.weight.zero_()
        trial.weight[:, first] = block
        trial.weight[:, second] = block
        if trial.bias is not None:
            small = torch.finfo(torch.float32).eps if like.weight.dtype != torch.float64 else 1e-16
            trial.bias.copy_(noise.repeat(-(-num_out // _NOISE))[:num_out] * small)
    return trial.requires_grad_(False)


def cancelling_rows(like: Linear, count: int) -> Tensor:
    """Rows [count, in] that `cancelling_linear` maps to 0, but for rounding."""
    num_in = like.weight.shape[1]
    first, second = _pairs(num_in)
    rows = torch.zeros(count, num_in)
    rows[:, first] = _noise(count * len(first)).view(count, len(first))
    rows[:, second] = -rows[:, first]
    return rows.to(like.weight.dtype).to(like.weight.device)


def _pairs(num_in: int) -> tuple[Tensor, Tensor]:
    """Two disjoint halves of the inputs in random order: the i-th of one cancels the i-th of the other."""
    order = torch.randperm(num_in, generator=torch.Generator().manual_seed(1))
    half = num_in // 2
    return order[:half], order[half : 2 * half]


def _noise(count: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0))
