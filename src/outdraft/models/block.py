"""One layer of a decoder, for every architecture that outdraft knows.

    sequential (Llama, GPT-2)              parallel (GPT-NeoX)
    h --+--norm--attention--(+)--+--norm--mlp--(+)--      h --+--norm--attention--(+)--(+)--
        +--------------------+   +-------------+              +--norm--mlp--------------+
                                                              +-------------------------+
Queries, keys and values are one matrix product; so are the gate and the up projection. Data: h [N, D] -> [N, D].
"""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.core.errors import ConfigError
from outdraft.models.config import ModelConfig
from outdraft.nn.activation import Bend
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear, LinearMap
from outdraft.nn.norm import LayerNorm, RMSNorm
from outdraft.nn.quant.linear import QuantLinear
from outdraft.nn.rope import Rotation


def make_norm(config: ModelConfig, dim: int, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """The configured kind of norm over `dim` channels."""
    kind = RMSNorm if config.norm == "rms" else LayerNorm
    return kind(dim, config.norm_eps, dtype, device)


def make_linear(
    config: ModelConfig, name: str, num_in: int, num_out: int, bias: bool, dtype: torch.dtype, device: torch.device
) -> LinearMap:
    """The linear map called `name`, with small integers for weights if the configuration says so."""
    quant = config.quant
    if quant is None or not quant.covers(name):
        return Linear(num_in, num_out, bias, dtype, device)
    return QuantLinear(
        num_in, num_out, bias, dtype, device, bits=quant.bits_at(name), group_size=quant.group_size, name=name
    )


class Block(nn.Module):
    """Attention and feed-forward of layer `index`. Raises `ConfigError` for heads that cannot share their keys."""

    def __init__(self, config: ModelConfig, index: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        if config.num_heads % config.num_kv_heads:
            raise ConfigError(
                f"num_heads={config.num_heads}, num_kv_heads={config.num_kv_heads}: heads share keys and values in "
                "equal groups, so the first must be a multiple of the second"
            )
        self.index = index
        self.window = config.window(index)
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.scale = config.head_dim**-0.5
        self.parallel = config.parallel_residual
        width, inner = config.hidden_size, config.intermediate_size
        self.bend: Callable[[Tensor, bool], Tensor] = Bend(config.activation, inner if config.gated_mlp else None)
        heads = config.num_heads + 2 * config.num_kv_heads

        def linear(name: str, num_in: int, num_out: int, bias: bool) -> LinearMap:
            return make_linear(config, f"layers.{index}.{name}", num_in, num_out, bias, dtype, device)

        self.attn_norm = make_norm(config, width, dtype, device)
        self.qkv = linear("qkv", width, heads * config.head_dim, config.qkv_bias)
        self.out = linear("out", config.num_heads * config.head_dim, width, config.out_bias)
        self.q_norm = make_norm(config, config.head_dim, dtype, device) if config.qk_norm else None
        self.k_norm = make_norm(config, config.head_dim, dtype, device) if config.qk_norm else None
        self.mlp_norm = make_norm(config, width, dtype, device)
        self.up = linear("up", width, 2 * inner if config.gated_mlp else inner, config.mlp_bias)
        self.down = linear("down", inner, width, config.mlp_bias)

    def forward(
        self,
        h: Tensor,
        rotation: Rotation | None,
        ctx: AttentionContext,
        exact: bool,
        *,
        attention: bool = True,
        mlp: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """[N, D] -> [N, D] after the layer, and [N, D] with its attention alone; the context keeps keys and values.

        `attention`, `mlp`: whether that half runs.
        """
        middle = h + self._attention(self.attn_norm(h), rotation, ctx) if attention else h
        if not mlp:
            return middle, middle
        return middle + self._mlp(self.mlp_norm(h if self.parallel else middle), ctx, exact), middle

    def _attention(self, x: Tensor, rotation: Rotation | None, ctx: AttentionContext) -> Tensor:
        heads, kv_heads = self.num_heads, self.num_kv_heads
        qkv = self.qkv(x, ctx.bulk).view(-1, heads + 2 * kv_heads, self.head_dim)  # [N, H + 2 Hkv, d]
        qk, v = qkv.split((heads + kv_heads, kv_heads), 1)  # a split has a cheaper gradient than slices
        if self.q_norm is not None and self.k_norm is not None:
            qk = torch.cat((self.q_norm(qk[:, :heads]), self.k_norm(qk[:, heads:])), 1)
        if rotation is not None:
            qk = rotation(qk).to(v.dtype)
        q, k = qk.split((heads, kv_heads), 1)
        mixed = ctx.attend(self.index, q, k, v, window=self.window, scale=self.scale)
        return self.out(mixed, ctx.bulk)  # type: ignore[no-any-return]

    def _mlp(self, x: Tensor, ctx: AttentionContext, exact: bool) -> Tensor:
        return self.down(self.bend(self.up(x, ctx.bulk), exact), ctx.bulk)  # type: ignore[no-any-return]


def blocks_of(layers: Iterable[nn.Module]) -> list[Block]:
    """Layers that are all blocks, by their type."""
    found = []
    for layer in layers:
        assert isinstance(layer, Block)
        found.append(layer)
    return found


def embedding_rows(weight: Tensor, ids: Tensor) -> Tensor:
    """Rows of a table: weight [V, D], ids [N] -> [N, D]."""
    return F.embedding(ids, weight)
