"""A layer of a block network: the rows of a block see themselves, and what the target said of committed rows.

    context c ------------------- k, v -----+      c is the same for every layer, and passes no norm of the layer
    block h --+-- norm --+-- q, k, v -- attention -- out --(+)--+-- norm -- mlp --(+)--
              |         [conv]                       [conv] |   |  [conv]  [conv]  |
              +---------------------------------------------+   +------------------+

The same maps make keys and values of both. `[conv]`: where the network has them. DFlash, Chen et al., 2026,
https://arxiv.org/abs/2602.06036.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from outdraft.models.networks.block import MLP, make_linear, make_norm
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.parts import PartPlace
from outdraft.nn.linear import LinearMap
from outdraft.nn.rope import Rotation

Sublayer = Callable[[Tensor], Tensor]  # normed rows [N, D] -> what it adds [N, D]
Around = Callable[[Tensor, Sublayer, int], Tensor]  # the normed rows [N, D], a sublayer, slots of a block -> its output


class BlockAttention(Protocol):
    """What the slots of a pass see."""

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, *, scale: float, sinks: Tensor | None = None
    ) -> Tensor:
        """q [N, H, d], k and v [N, Hkv, d] of all slots, rotary applied -> [N, H * d]. sinks: [H]."""


def plainly(x: Tensor, sublayer: Sublayer, size: int) -> Tensor:
    """Nothing stands around a sublayer."""
    return sublayer(x)


class BlockLayer(nn.Module):
    """Layer `index`. `attention_conv`, `mlp_conv`: what stands around a sublayer. The others: see `BlockConfig`."""

    def __init__(
        self,
        config: ModelConfig,
        index: int,
        dtype: torch.dtype,
        device: torch.device,
        convolution: Callable[[], nn.Module] | None = None,
        *,
        sinks: bool = False,
        value_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.index, self.scale, self.value_scale = index, config.head_dim**-0.5, value_scale
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        width = config.hidden_size

        def linear(name: str, num_in: int, num_out: int, bias: bool) -> LinearMap:
            return make_linear(config, f"layers.{index}.{name}", num_in, num_out, bias, dtype, device)

        def norm(dim: int) -> nn.Module:
            return make_norm(config, dim, dtype, device)

        self.attn_norm, self.mlp_norm = norm(width), norm(width)
        self.q = linear("q", width, config.num_heads * config.head_dim, config.qkv_bias)
        self.kv = linear("kv", width, 2 * config.num_kv_heads * config.head_dim, config.qkv_bias)
        self.q_norm = norm(config.head_dim) if config.qk_norm else None
        self.k_norm = norm(config.head_dim) if config.qk_norm else None
        self.sinks: nn.Parameter | None = None
        if sinks:
            self.sinks = nn.Parameter(torch.full((config.num_heads,), float("nan"), dtype=dtype, device=device))
        self.out = linear("out", config.num_heads * config.head_dim, width, config.out_bias)
        self.mlp = MLP(config, PartPlace(index=index, width=width, dtype=dtype, device=device, linear=linear))
        self.attention_conv = None if convolution is None else convolution()
        self.mlp_conv = None if convolution is None else convolution()

    def keys(self, x: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Keys and values of contexts, or of normed block rows: [N, D] -> [N, Hkv, d] each."""
        k, v = self.kv(x).view(-1, 2 * self.num_kv_heads, self.head_dim).split(self.num_kv_heads, 1)
        k = k if self.k_norm is None else self.k_norm(k)
        return rotation(k).to(v.dtype), v if self.value_scale == 1 else v * self.value_scale

    def mixed(self, x: Tensor, rotation: Rotation, ctx: BlockAttention) -> Tensor:
        """What the slots see, of normed rows: [N, D] -> [N, D]."""
        q = self.q(x).view(-1, self.num_heads, self.head_dim)
        q = q if self.q_norm is None else self.q_norm(q)
        k, v = self.keys(x, rotation)
        seen = ctx.attend(self.index, rotation(q).to(v.dtype), k, v, scale=self.scale, sinks=self.sinks)
        found: Tensor = self.out(seen)
        return found

    def forward(self, h: Tensor, rotation: Rotation, ctx: BlockAttention, size: int, exact: bool) -> Tensor:
        """The rows of all blocks, `size` of each, block after block: [N, D] -> [N, D]."""
        mixed = partial(self.mixed, rotation=rotation, ctx=ctx)
        return self.around(h, mixed, partial(self.mlp, bulk=(), exact=exact), size)

    def around(self, h: Tensor, mixed: Sublayer, fed: Sublayer, size: int) -> Tensor:
        """What stands around attention and feed-forward, wherever these are computed: [N, D] -> [N, D]."""
        h = h + (self.attention_conv or plainly)(self.attn_norm(h), mixed, size)
        added: Tensor = h + (self.mlp_conv or plainly)(self.mlp_norm(h), fed, size)
        return added
