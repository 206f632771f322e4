"""Find out how a matrix product must be cut so that a row's bits do not depend on how many rows are beside it.

Measured with torch 2.13 on CPU: eager float32 and float64 products give one row other bits than several; fixed tiles
of 8 or 16 rows are stable; oneDNN's packed product is stable up to 32 rows, for some widths from 2 rows on. None of it
is promised anywhere, so each shape is tried on random rows when a model is prepared, from the cheapest plan to the
dearest; one row at a time is right by construction. The answer holds for the number of threads it was found with.
"""

import torch
from torch import Tensor

from outdraft.nn.linear import Linear, RowTile

_PLANS = (
    RowTile(most=32, least=1, packed=True),
    RowTile(most=32, least=2, packed=True),
    RowTile(most=32, least=1, packed=False),
    RowTile(most=4, least=4, packed=False),
    RowTile(most=8, least=8, packed=False),
    RowTile(most=16, least=16, packed=False),
    RowTile(most=1, least=1, packed=False),
)
_COUNTS = (2, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33)
_SMALL = 1 << 20  # weights up to this size are tried with every row count
_SHIFTS = ((1, 5), (7, 9), (11, 20))  # (first row, rows): the same rows at other addresses


@torch.no_grad()
def find_tile(linear: Linear) -> RowTile:
    """The cheapest plan under which this map's rows are independent; `linear` is left packed as the plan wants."""
    rows = _random_rows(linear)
    linear.pack()
    if linear.packed is not None:
        for plan in _PLANS:
            if plan.packed and is_invariant(linear, plan, rows):
                return plan
    linear.unpack()
    return next(plan for plan in _PLANS if not plan.packed and is_invariant(linear, plan, rows))


def is_invariant(linear: Linear, plan: RowTile, rows: Tensor) -> bool:
    """Whether every row gets the bits that it gets alone, for all tried row counts. rows [N, in]."""
    alone = torch.cat([linear.tiled(rows[i : i + 1], plan) for i in range(len(rows))])  # [N, out]
    counts = range(2, len(rows) + 1) if linear.weight.numel() <= _SMALL else _COUNTS
    spans = [(0, count) for count in counts] + [(first, first + count) for first, count in _SHIFTS]
    return all(torch.equal(linear.tiled(rows[i:j], plan), alone[i:j]) for i, j in spans)


def _random_rows(linear: Linear) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(max(_COUNTS), linear.weight.shape[1], generator=generator)
    return rows.to(linear.weight.dtype).to(linear.weight.device)
