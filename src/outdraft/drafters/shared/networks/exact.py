"""Row-exact inference for a drafter's own network: its result for one sequence does not depend on the batch.

A guess never changes a greedy text, but under rejection rules a sampled text depends on what was drafted. Data in: a
module; afterwards its linear maps are packed and cut so that no row's bits depend on the rows beside it.
"""

from torch import nn

from outdraft.nn.invariance import find_tile
from outdraft.nn.linear import LinearMap, RowTile


def make_exact(module: nn.Module) -> None:
    """Prepare every linear map of the module for inference with its present weights and number of threads."""
    tiles: dict[tuple[tuple[int, int], bool], RowTile] = {}
    for linear in module.modules():
        if isinstance(linear, LinearMap):
            kind = (linear.shape, linear.bias is not None)
            if kind not in tiles:
                tiles[kind] = find_tile(linear)
            if tiles[kind].packed:
                linear.pack()
            linear.tile = tiles[kind]
