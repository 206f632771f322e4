"""One layer of a decoder, for every architecture that outdraft knows.

    sequential (Llama, GPT-2)              parallel (GPT-NeoX)
    h --+--norm--attention--(+)--+--norm--mlp--(+)--      h --+--norm--attention--(+)--(+)--
        +--------------------+   +-------------+              +--norm--mlp--------------+
                                                              +-------------------------+
Norms may also, or only, stand behind attention and mlp (Gemma 2, OLMo 2), what is added may be scaled (Granite), and
the parallel halves may share one norm (Cohere): all of it is data in `ModelConfig`.
Queries, keys and values are one matrix product; so are the gate and the up projection. Data: h [N, D] -> [N, D].
"""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.models.networks.config import ModelConfig
from outdraft.nn.activation import Bend
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear, LinearMap
from outdraft.nn.norm import LayerNorm, RMSNorm, WideRMSNorm
from outdraft.nn.quant.linear import QuantLinear
from outdraft.nn.rope import Rotation
from outdraft.options.errors import ConfigError


def make_norm(config: ModelConfig, dim: int, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """The configured kind of norm over `dim` channels."""
    if config.norm == "layer":
        return LayerNorm(dim, config.norm_eps, dtype, device, bias=config.norm_bias)
    kind = WideRMSNorm if config.norm == "rms32" else RMSNorm
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
        self.turns = config.rope_kind(index)
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.norms_whole = config.qk_norm_whole
        self.scale = config.head_dim**-0.5 if config.score_scale is None else config.score_scale
        self.cap = config.score_cap
        self.parallel = config.parallel_residual
        self.added = config.residual_scale
        width, inner = config.hidden_size, config.intermediate_size
        self.bend: Callable[[Tensor, bool], Tensor] = Bend(config.activation, inner if config.gated_mlp else None)
        heads = config.num_heads + 2 * config.num_kv_heads

        def linear(name: str, num_in: int, num_out: int, bias: bool) -> LinearMap:
            return make_linear(config, f"layers.{index}.{name}", num_in, num_out, bias, dtype, device)

        def place(wanted: bool) -> nn.Module:
            return make_norm(config, width, dtype, device) if wanted else nn.Identity()

        def heads_norm(count: int) -> nn.Module | None:
            dim = count * config.head_dim if config.qk_norm_whole else config.head_dim
            return make_norm(config, dim, dtype, device) if config.qk_norm else None

        self.attn_norm = place(config.pre_norm)
        self.attn_post_norm = place(config.post_norm)
        self.qkv = linear("qkv", width, heads * config.head_dim, config.qkv_bias)
        self.out = linear("out", config.num_heads * config.head_dim, width, config.out_bias)
        self.q_norm = heads_norm(config.num_heads)
        self.k_norm = heads_norm(config.num_kv_heads)
        self.mlp_norm = self.attn_norm if config.shared_norm else place(config.pre_norm)
        self.mlp_post_norm = place(config.post_norm)
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
        middle = h + self.attended(h, rotation, ctx) if attention else h
        if not mlp:
            return middle, middle
        return middle + self.fed_forward(h if self.parallel else middle, ctx, exact), middle

    def attended(self, h: Tensor, rotation: Rotation | None, ctx: AttentionContext) -> Tensor:
        """What attention adds to h [N, D], its norms included: [N, D]."""
        return self._scaled(self.attn_post_norm(self._attention(self.attn_norm(h), rotation, ctx)))

    def fed_forward(self, h: Tensor, ctx: AttentionContext, exact: bool) -> Tensor:
        """What the feed-forward adds to h [N, D], its norms included: [N, D]."""
        return self._scaled(self.mlp_post_norm(self._mlp(self.mlp_norm(h), ctx, exact)))

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.added == 1 else x * self.added

    def _attention(self, x: Tensor, rotation: Rotation | None, ctx: AttentionContext) -> Tensor:
        heads, kv_heads = self.num_heads, self.num_kv_heads
        qkv = self.qkv(x, ctx.bulk).view(-1, heads + 2 * kv_heads, self.head_dim)  # [N, H + 2 Hkv, d]
        qk, v = qkv.split((heads + kv_heads, kv_heads), 1)  # a split has a cheaper gradient than slices
        if self.q_norm is not None and self.k_norm is not None:
            q, k = qk.split((heads, kv_heads), 1)
            if self.norms_whole:
                q, k = self.q_norm(q.flatten(1)).view_as(q), self.k_norm(k.flatten(1)).view_as(k)
            else:
                q, k = self.q_norm(q), self.k_norm(k)
            qk = torch.cat((q, k), 1)
        if rotation is not None:
            qk = rotation(qk).to(v.dtype)
        q, k = qk.split((heads, kv_heads), 1)
        if rotation is not None and rotation.growth is not None:
            q = q * rotation.growth
        mixed = ctx.attend(self.index, q, k, v, window=self.window, scale=self.scale, cap=self.cap)
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
