"""A drafter's own network, made ready to draft beside its target.

Where the native kernels run the target they compute the linear maps too, rounded to integers as the options say; else
PyTorch does, as it is stored. Either way no row's bits depend on the rows beside it: a guess never changes a greedy
text, but under rejection rules a sampled text depends on what was drafted. Data in: a network as it was loaded;
afterwards it can only be used for inference.
"""

from dataclasses import replace

import torch
from torch import nn

from outdraft.core.weights import Weights
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.networks.rounding import grid_of, round_linears
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.networks.port import TargetPort
from outdraft.models.remake.packed_map import pack_maps
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


def prepare(net: nn.Module, port: TargetPort, quantization: str) -> Weights:
    """Round, pack and report what came of it. "auto": bytes on the kernels; int4 leaves projections on 8 bits.

    Raises as `round_linears` does.
    """
    weights, target = round_net(net, port, quantization)
    pack_net(net, target)
    return weights


def round_net(net: nn.Module, port: TargetPort, quantization: str) -> tuple[Weights, NativeDecoder | None]:
    """The first half: the maps are rounded, and the target is returned if the kernels may take them."""
    target = port.layers.native
    if target is not None and port.facts.dtype != torch.bfloat16:
        target = None
    grid = grid_of(quantization, auto="none" if target is None else "int8")
    if grid is not None and grid.bits == 4:
        grid = replace(grid, layer_bits=(("projections.*", 8), *grid.layer_bits))
    if grid is not None:
        round_linears(net, grid, asked=quantization != "auto")
    return module_weights(net, native=target is not None, grid=grid), target


def pack_net(net: nn.Module, target: NativeDecoder | None) -> None:
    """The other half: the maps are computed by the kernels, or by PyTorch alone."""
    if target is not None:
        pack_maps(net, target)
    make_exact(net)
