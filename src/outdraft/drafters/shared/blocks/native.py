"""A block network on the native kernels: all layers of a block, and the scores of its slots, in one call.

    contexts   fc, keys and values of committed rows: packed maps, into the cache (`texts.py`)
    block      rows behind the text, each of which sees the text and the whole block, or what of it is before it

The rows of a block stand in the cache while the call lasts, and are dropped. Networks with convolutions, with a mask of
their own or with causal windows run through PyTorch. Data in: a network as loaded; data out: one that only drafts.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from outdraft.core.weights import Weights
from outdraft.drafters.shared.blocks.layers import BlockLayer
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.networks.prepare import make_exact, prepare
from outdraft.drafters.shared.networks.rounding import grid_of, round_linears
from outdraft.kernels.decoder.guesser import Guesser
from outdraft.kernels.decoder.matrix import Weight
from outdraft.kernels.decoder.stack import LayerParts, Stack
from outdraft.models.networks.guess import NativeGuesser
from outdraft.models.networks.native import NativeDecoder, any_norm_of, can_pack, embedding_scale, norm_of, shape_of
from outdraft.models.networks.packable import weight_of
from outdraft.models.networks.port import TargetPort
from outdraft.models.remake.packed_map import pack_maps
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import LinearMap


class NativeBlocks:
    """The network's layers and head, packed beside its target's."""

    def __init__(self, net: BlockNet, guesser: NativeGuesser) -> None:
        self._config, self._guesser = net.config, guesser

    def run(
        self, cache: DraftCache, seqs: Seq[int], anchors: Seq[int], positions: Seq[int], counts: Seq[int]
    ) -> tuple[Tensor, Tensor]:
        """Of the first `counts[i]` slots of each block, text after text: states [M, D], and what the head says [M, V'].

        The states are those before the last norm. Raises `CacheFullError` where there is no room for the blocks.
        """
        config, size = self._config, self._config.block_size
        context: AttentionContext
        if config.sight(0)[1]:
            context = cache.extend(seqs, [size] * len(seqs))
        else:
            others = [[row for row in range(size) if row != own] for own in range(size)]
            context = cache.branch(seqs, [others] * len(seqs))
        tokens = [token for anchor in anchors for token in (anchor, *[config.mask_token_id] * (size - 1))]
        places = [place for first in positions for place in range(first, first + size)]
        wanted = [i * size + slot for i, count in enumerate(counts) for slot in range(count)]
        found = self._guesser.feed(tokens, places, context, wanted)
        for seq in seqs:
            cache.keep(seq, ())
        return found


def on_kernels(net: BlockNet, port: TargetPort, quantization: str) -> tuple[NativeBlocks | None, Weights]:
    """Round, pack and report what came of it; None: PyTorch runs the layers."""
    target = port.layers.native
    if target is None or port.facts.dtype != torch.bfloat16 or not _is_plain(net, target):
        weights = prepare(net, port, quantization)
        net.exact = True
        return None, weights
    grid = grid_of(quantization, auto="int8")
    if grid is not None:
        round_linears(net, grid)
    weights = module_weights(net, native=True, grid=grid)
    blocks = NativeBlocks(net, _pack(net, target))
    for layer in _layers(net):  # keys and values of contexts are still made by themselves
        layer.q = layer.out = layer.mlp = nn.Identity()  # type: ignore[assignment]
    net.lm_head = None if net.lm_head is None else nn.Identity()  # type: ignore[assignment]
    pack_maps(net, target)
    make_exact(net)
    return blocks, weights


def _is_plain(net: BlockNet, target: NativeDecoder) -> bool:
    config = net.config
    sights = [config.sight(layer.index) for layer in _layers(net)]
    return (
        can_pack(config.layers, target.dtype, target.device)
        and not config.own_mask
        and all(layer.attention_conv is None for layer in _layers(net))
        and len({causal for _, causal in sights}) == 1
        and not any(causal and window is not None for window, causal in sights)
    )


def _layers(net: BlockNet) -> list[BlockLayer]:
    return [layer for layer in net.layers if isinstance(layer, BlockLayer)]


def _pack(net: BlockNet, target: NativeDecoder) -> NativeGuesser:
    config, head = net.config, net.lm_head
    shape = replace(shape_of(config.layers), vocab=target.stack.num_out if head is None else head.shape[0])
    if head is None:
        shape = replace(shape, logit_scale=target.config.logit_scale, logit_cap=target.config.logit_cap or 0.0)
    body = Stack(shape, config.layers.num_layers, threads=target.stack.threads, kind=target.kernels)
    for layer in _layers(net):
        body.set_layer(layer.index, _parts_of(layer, config.sight(layer.index)[0], config.block_size))
    if head is not None:
        body.set_head(weight_of(head), None)
    own = net.embedding
    guesser = Guesser(
        body,
        target.stack if head is None else body,
        target.table if own is None else own.detach(),
        num_layers=config.layers.num_layers,
        embedding_scale=config.embedding_scale * (embedding_scale(target.config) if own is None else 1.0),
        norm=norm_of(net.norm),
        eps=config.layers.norm_eps,
    )
    return NativeGuesser(guesser, net.rope)


def _parts_of(layer: BlockLayer, window: int | None, size: int) -> LayerParts:
    return LayerParts(
        qkv=_beside(layer.q, layer.kv),
        out=weight_of(layer.out),
        up=weight_of(layer.mlp.up),
        down=weight_of(layer.mlp.down),
        attn_norm=any_norm_of(layer.attn_norm),
        mlp_norm=any_norm_of(layer.mlp_norm),
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
