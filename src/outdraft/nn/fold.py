"""Recurrence in a pass: each row reads the state that its parent left, and leaves one itself.

    text  a -- b -- c --+-- d        state of e = step(state of c, row e): a rejected d leaves no trace in it
                        +-- e

Row by row, so that no bit depends on what else is in the pass. Data in: a state's shape, a step, and what each row puts
in; data out: what each row gets. Where states come from and stay is the context's, as keys and values are.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from outdraft.core.cache import StateMemory
from outdraft.nn.segment import Segment
from outdraft.options.errors import CapabilityError

Step = Callable[..., tuple[Tensor, Tensor]]  # (state, a row of each input) -> (state after the row, what the row gets)


@runtime_checkable
class FoldingContext(Protocol):
    """A context that keeps states."""

    def fold(self, layer: int, step: Step, inputs: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
        """The outputs of `step` at every row, in the order of `inputs`."""


def fold(ctx: object, layer: int, step: Step, inputs: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    """`step` at every row of the pass whose context this is: inputs of N rows each -> [N, ..].

    A state has `shape`, and is zeros before any row. Raises `CapabilityError` for a context that keeps no states.
    """
    if not isinstance(ctx, FoldingContext):
        raise CapabilityError(
            f"layer {layer} is recurrent, and this pass keeps keys and values only: run the layers in whole passes "
            "(no drafter that runs parts of its target, and no recorded passes)"
        )
    return ctx.fold(layer, step, inputs, shape)


def empty_state(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """The state before any row: zeros, of float32 at least."""
    return torch.zeros(shape, dtype=torch.promote_types(like.dtype, torch.float32), device=like.device)


def fold_tree(
    step: Step, inputs: Sequence[Tensor], rows: range, parents: Sequence[int], base: Tensor, num_certain: int = 0
) -> tuple[list[Tensor], dict[int, Tensor]]:
    """`step` along a tree: what each of `rows` gets, and the state after each, by its number in the tree.

    `parents`: -1 reads from `base`. Of the first `num_certain` rows, a chain, only the last one's state is given.
    """
    gets, states = [], dict[int, Tensor]()
    for node, (row, parent) in enumerate(zip(rows, parents, strict=True)):
        states[node], got = step(base if parent < 0 else states[parent], *(x[row] for x in inputs))
        gets.append(got)
        if 0 < node < num_certain:
            del states[node - 1]
    return gets, states


def fold_cached(
    states: object, segments: Sequence[Segment], layer: int, step: Step, inputs: Sequence[Tensor]
) -> Tensor:
    """`step` segment by segment from the states that a cache keeps; that after every row of a draft stays there."""
    if not isinstance(states, StateMemory):
        raise CapabilityError(
            f"layer {layer} is recurrent, and this cache keeps keys and values only: take a draft model without "
            "recurrent layers"
        )
    gets = []
    for part in segments:
        if part.mask is not None:
            raise CapabilityError(
                f"sequence {part.seq}: its draft brings a mask of its own, and layer {layer} is recurrent: a row "
                "reads the state of one parent. Take a drafter of chains or trees"
            )
        first, rows = part.base - states.length(part.seq), range(part.start, part.stop)
        parents = part.parents or range(-1, part.num_rows - 1)
        base = states.before(part.seq, layer, first - 1)
        own, left = fold_tree(step, inputs, rows, parents, base, part.bulk or 0)
        gets += own
        for node, state in left.items():
            states.leave(part.seq, layer, first + node, state)
    return torch.stack(gets)
