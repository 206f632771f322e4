"""A block network on the native kernels: the layers of all blocks of a round in one call, and the scores of slots.

    contexts   fc, keys and values of committed rows: packed maps, into the cache (`drafter.py`)
    block      rows behind the text, each of which sees the text and the whole block, or what of it is before it

The rows of a block stand in the cache while the call lasts, and are dropped. With causal windows, sinks or scaled
values PyTorch runs the layers. Data in: a network as it was loaded; data out: one that can only draft.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from outdraft.core.skip import Skip
from outdraft.core.weights import Weights
from outdraft.drafters.shared.blocks.layers import BlockLayer
from outdraft.drafters.shared.blocks.net import BlockNet, block_layers
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.networks.prepare import make_exact, prepare
from outdraft.drafters.shared.networks.rounding import grid_of, round_linears
from outdraft.kernels.decoder.matrix import Weight
from outdraft.kernels.decoder.rows import Span
from outdraft.kernels.decoder.stack import LayerParts, Stack
from outdraft.models.networks.native import NativeDecoder, any_norm_of, can_pack, shape_of, spans_of
from outdraft.models.networks.packable import weight_of
from outdraft.models.networks.port import TargetPort
from outdraft.models.remake.packed_map import pack_maps
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import LinearMap


class NativeBlocks:
    """The network's layers and head, packed beside its target's: all layers at once, or with convolutions each half."""

    def __init__(self, net: BlockNet, body: Stack, head: Stack) -> None:
        self._net, self._body, self._head = net, body, head
        self._is_whole = all(layer.attention_conv is None for layer in block_layers(net))

    def run(
        self, cache: DraftCache, seqs: Seq[int], rows: Tensor, positions: Seq[int], depths: Seq[int]
    ) -> tuple[Tensor, Tensor]:
        """States [B * b, D] of all slots, and what the head says of the first `depths[i]` that guess [M, V'].

        rows [B * b, D]: of blocks whose anchors stand at `positions`. Raises `CacheFullError` where there is no room.
        """
        config, size = self._net.config, len(rows) // len(seqs)
        context: AttentionContext
        if config.sight(0)[1]:
            context = cache.extend(seqs, [size] * len(seqs))
        else:
            others = [[row for row in range(size) if row != own] for own in range(size)]
            context = cache.branch(seqs, [others] * len(seqs))
        places = [place for first in positions for place in range(first, first + size)]
        try:
            h = self._layers(rows.float(), places, spans_of(context), size)
        finally:
            for seq in seqs:
                cache.keep(seq, ())
        states, first = self._net.norm(h), config.first_slot
        wanted = [i * size + slot for i, depth in enumerate(depths) for slot in range(first, first + depth)]
        return states.to(self._net.dtype), self._head.logits(states[wanted], norm=False)

    def _layers(self, h: Tensor, places: list[int], spans: Seq[Span], size: int) -> Tensor:
        """Rows [N, D] float32, `size` of each block -> states [N, D]."""
        cos, sin = self._net.rope.table(max(places) + 1, torch.float32, torch.device("cpu"))

        def half(x: Tensor, index: int, skip: Skip) -> Tensor:
            """What attention or feed-forward adds to rows that are normed already."""
            out = x.clone()
            self._body.run(out, places, cos, sin, spans, [index], skip=skip)
            return out - x

        if self._is_whole:
            h = h.clone()
            self._body.run(h, places, cos, sin, spans, range(self._net.config.layers.num_layers))
            return h
        for layer in block_layers(self._net):
            this = frozenset((layer.index,))
            attend, feed_forward = Skip(mlp=this), Skip(attention=this)
            mixed, fed = (partial(half, index=layer.index, skip=skip) for skip in (attend, feed_forward))
            h = layer.around(h, mixed, fed, size)
        return h


def on_kernels(net: BlockNet, port: TargetPort, quantization: str) -> tuple[NativeBlocks | None, Weights]:
    """Round, pack and report what came of it; None: PyTorch runs the layers."""
    target = port.layers.native
    if target is None or port.facts.dtype != torch.bfloat16 or not _can_pack(net, target):
        weights = prepare(net, port, quantization)
        net.exact = True
        return None, weights
    grid = grid_of(quantization, auto="int4")
    if grid is not None:
        round_linears(net, grid, asked=quantization != "auto")
    weights = module_weights(net, native=True, grid=grid)
    blocks = _pack(net, target)
    for layer in block_layers(net):  # keys and values of contexts are still made by themselves
        layer.q = layer.out = layer.mlp = nn.Identity()  # type: ignore[assignment]
    net.lm_head = None if net.lm_head is None else nn.Identity()  # type: ignore[assignment]
    pack_maps(net, target)
    make_exact(net)
    return blocks, weights


def _can_pack(net: BlockNet, target: NativeDecoder) -> bool:
    config = net.config
    sights = [config.sight(layer.index) for layer in block_layers(net)]
    return (
        can_pack(config.layers, target.dtype, target.device)
        and not config.sinks
        and config.value_scale == 1
        and len({causal for _, causal in sights}) == 1
        and not any(causal and window is not None for window, causal in sights)
    )


def _pack(net: BlockNet, target: NativeDecoder) -> NativeBlocks:
    config, head = net.config, net.lm_head
    shape = replace(shape_of(config.layers), vocab=target.stack.num_out if head is None else head.shape[0])
    body = Stack(shape, config.layers.num_layers, threads=target.stack.threads, kind=target.kernels)
    for layer in block_layers(net):
        body.set_layer(layer.index, _parts_of(layer, config.sight(layer.index)[0], config.slots))
    if head is not None:
        body.set_head(weight_of(head), None)
    return NativeBlocks(net, body, target.stack if head is None else body)


def _parts_of(layer: BlockLayer, window: int | None, size: int) -> LayerParts:
    is_whole = layer.attention_conv is None  # else the rows are normed before a convolution
    return LayerParts(
        qkv=_beside(layer.q, layer.kv),
        out=weight_of(layer.out),
        up=weight_of(layer.mlp.up),
        down=weight_of(layer.mlp.down),
        attn_norm=any_norm_of(layer.attn_norm) if is_whole else None,
        mlp_norm=any_norm_of(layer.mlp_norm) if is_whole else None,
        q_norm=any_norm_of(layer.q_norm),
        k_norm=any_norm_of(layer.k_norm),
        window=0 if window is None else window + size,  # the kernels count from the end of what a row sees
    )


def _beside(*maps: LinearMap) -> Weight:
    """Maps of the same rows as one."""
    parts = [weight_of(one) for one in maps]
    first = parts[0]
    assert isinstance(first, Weight)

    def columns(name: Literal["scales", "bias"]) -> Tensor | None:
        found = [getattr(one, name) for one in parts]
        return None if found[0] is None else torch.cat(found)

    values = torch.cat([one.values for one in parts if isinstance(one, Weight)])
    return replace(first, values=values, scales=columns("scales"), bias=columns("bias"))
