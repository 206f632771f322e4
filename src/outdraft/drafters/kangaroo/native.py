"""The adapter on the kernels that run its target: a layer without a feed-forward half, and the head behind a norm.

Data as of `net.KangarooAdapter`, but that states leave it before its last norm.
"""

from dataclasses import replace

import torch
from torch import Tensor

from outdraft.core.skip import Skip
from outdraft.drafters.kangaroo.net import KangarooAdapter
from outdraft.kernels.decoder.matrix import STEP, Weight
from outdraft.kernels.decoder.stack import LayerParts, Stack
from outdraft.models.networks.native import NativeDecoder, PackedNetwork, can_pack, norm_of, shape_of
from outdraft.models.networks.packable import weight_of
from outdraft.nn.context import AttentionContext
from outdraft.nn.rope import RopeTables

_ATTENTION = Skip(mlp=frozenset({0}))


class NativeAdapter(PackedNetwork):
    """With the maps that the adapter has now, rounded or not."""

    def __init__(self, adapter: KangarooAdapter, target: NativeDecoder) -> None:
        head = adapter.lm_head
        self.config = config = replace(
            adapter.config.layers, intermediate_size=STEP, vocab_size=STEP if head is None else head.shape[0]
        )
        self.rope, self.kernels = RopeTables(config.rope_kinds()), target.kernels
        self.stack = Stack(shape_of(config), 1, threads=target.stack.threads, kind=target.kernels)
        self._norm, self._adapter = norm_of(adapter.norm), adapter
        up, down = (
            torch.zeros(size, dtype=torch.bfloat16)
            for size in ((2 * STEP, config.hidden_size), (config.hidden_size, STEP))
        )
        self.stack.set_layer(
            0,
            LayerParts(
                qkv=weight_of(adapter.attention.qkv),
                out=weight_of(adapter.attention.out),
                up=Weight(bits=16, values=up),  # never read
                down=Weight(bits=16, values=down),
                attn_norm=norm_of(adapter.attn_norm),
                mlp_norm=None,
                q_norm=None,
                k_norm=None,
                window=0,
            ),
        )
        if head is not None:
            self.stack.set_head(weight_of(head), self._norm)

    def __call__(self, h: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """[N, D] at positions [N] -> [N, D]; the context keeps keys and values."""
        return self.run(h, positions, ctx, skip=_ATTENTION).hidden

    def logits(self, h: Tensor) -> Tensor:
        """[N, D] -> [N, V], or [N, V'] of the adapter's own vocabulary."""
        return self._adapter.logits(self.norm(h)) if self._adapter.lm_head is None else super().logits(h)


def on_kernels(adapter: KangarooAdapter, target: NativeDecoder) -> NativeAdapter | None:
    """None where the kernels do not know an attention of this shape."""
    config = replace(adapter.config.layers, intermediate_size=STEP)
    return NativeAdapter(adapter, target) if can_pack(config, target.dtype, target.device) else None
