"""One layer of a decoder, for every architecture that outdraft knows.

    sequential (Llama, GPT-2)              parallel (GPT-NeoX)
    h --+--norm--attention--(+)--+--norm--mlp--(+)--      h --+--norm--attention--(+)--(+)--
        +--------------------+   +-------------+              +--norm--mlp--------------+
                                                              +-------------------------+
Norms may also, or only, stand behind attention and mlp (Gemma 2, OLMo 2), what is added may be scaled (Granite), and
the parallel halves may share one norm (Cohere): all of it is data in `ModelConfig`.
Either half may be of another kind (`parts.py`); these are `Attention` and `MLP`. Queries, keys and values are one
matrix product; so are the gate and the up projection. Data: h [N, D] -> [N, D].
"""

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.models.networks.config import ModelConfig, check_heads
from outdraft.models.networks.parts import FeedForward, Mixer, PartPlace
from outdraft.nn.activation import Bend
from outdraft.nn.context import AttentionContext
from outdraft.nn.flat_names import FlatNames
from outdraft.nn.linear import Linear, LinearMap, RowRange
from outdraft.nn.norm import LayerNorm, RMSNorm, WideRMSNorm
from outdraft.nn.quant.block_linear import BlockEmbedding, BlockLinear
from outdraft.nn.quant.linear import QuantLinear
from outdraft.nn.rope import Rotation


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
    if quant is not None and (parts := quant.parts_of(name, num_out)):
        return BlockLinear(num_in, num_out, bias, dtype, device, parts=parts, factors=quant.factors_of(name))
    if quant is None or not quant.covers(name):
        return Linear(num_in, num_out, bias, dtype, device)
    return QuantLinear(
        num_in, num_out, bias, dtype, device, bits=quant.bits_at(name), group_size=quant.group_size, name=name
    )


def make_embedding(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> nn.Parameter | BlockEmbedding:
    """The table of tokens, NaN until it is loaded, or a file's blocks if the configuration says so."""
    size = (config.vocab_size, config.hidden_size)
    if config.quant is not None and (parts := config.quant.parts_of("embedding", config.vocab_size)):
        return BlockEmbedding(*size, dtype, device, kind=parts[0][0])
    return nn.Parameter(torch.full(size, float("nan"), dtype=dtype, device=device))


def tie(head: LinearMap, embedding: nn.Parameter | BlockEmbedding) -> None:
    """Let a head have the weights of its embedding; integers of its own stay."""
    if isinstance(head, Linear) and isinstance(embedding, nn.Parameter):
        head.weight = embedding
    elif isinstance(head, BlockLinear) and isinstance(embedding, BlockEmbedding):
        head.blocks = embedding.blocks


class Attention(nn.Module):
    """The mixer of every architecture here. Raises as `check_heads` does."""

    def __init__(self, config: ModelConfig, place: PartPlace) -> None:
        super().__init__()
        check_heads(config)
        self.index = place.index
        self.window = config.window(place.index)
        self.turns = config.rope_kind(place.index)
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        self.norms_whole = config.qk_norm_whole
        self.scale = config.head_dim**-0.5 if config.score_scale is None else config.score_scale
        self.cap = config.score_cap
        heads = config.num_heads + 2 * config.num_kv_heads

        def heads_norm(count: int) -> nn.Module | None:
            dim = count * config.head_dim if config.qk_norm_whole else config.head_dim
            return make_norm(config, dim, place.dtype, place.device) if config.qk_norm else None

        self.qkv = place.linear("qkv", place.width, heads * config.head_dim, config.qkv_bias)
        self.out = place.linear("out", config.num_heads * config.head_dim, place.width, config.out_bias)
        self.q_norm = heads_norm(config.num_heads)
        self.k_norm = heads_norm(config.num_kv_heads)

    def forward(self, x: Tensor, rotation: Rotation | None, ctx: AttentionContext) -> Tensor:
        """x [N, D] -> [N, D]; the context keeps keys and values."""
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


class MLP(nn.Module):
    """The feed-forward of every architecture here: up, a non-linearity, gated or not, and down."""

    def __init__(self, config: ModelConfig, place: PartPlace) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.bend: Callable[[Tensor, bool], Tensor] = Bend(config.activation, inner if config.gated_mlp else None)
        self.up = place.linear("up", place.width, 2 * inner if config.gated_mlp else inner, config.mlp_bias)
        self.down = place.linear("down", inner, place.width, config.mlp_bias)

    def forward(self, x: Tensor, bulk: Sequence[RowRange], exact: bool) -> Tensor:
        """x [N, D] -> [N, D]."""
        return self.down(self.bend(self.up(x, bulk), exact), bulk)  # type: ignore[no-any-return]


class Block(FlatNames):
    """Layer `index`: its mixer and its feed-forward, with the norms and sums around them."""

    flat = ("mixer", "feed_forward")
    mixer: Mixer
    feed_forward: FeedForward

    def __init__(self, config: ModelConfig, index: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.parallel = config.parallel_residual
        self.added = config.residual_scale

        def linear(name: str, num_in: int, num_out: int, bias: bool) -> LinearMap:
            return make_linear(config, f"layers.{index}.{name}", num_in, num_out, bias, dtype, device)

        def norm(wanted: bool) -> nn.Module:
            return make_norm(config, config.hidden_size, dtype, device) if wanted else nn.Identity()

        place = PartPlace(index=index, width=config.hidden_size, dtype=dtype, device=device, linear=linear)
        mixer, feed_forward = config.mixer(index), config.feed_forward(index)
        self.attn_norm = norm(config.pre_norm)
        self.attn_post_norm = norm(config.post_norm)
        self.mixer = Attention(config, place) if mixer is None else mixer.build(place)
        self.mlp_norm = self.attn_norm if config.shared_norm else norm(config.pre_norm)
        self.mlp_post_norm = norm(config.post_norm)
        self.feed_forward = MLP(config, place) if feed_forward is None else feed_forward.build(place)

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
        """[N, D] -> [N, D] after the layer, and [N, D] with its mixer alone; the context keeps what that remembers.

        `attention`, `mlp`: whether that half runs.
        """
        middle = h + self.attended(h, rotation, ctx) if attention else h
        if not mlp:
            return middle, middle
        return middle + self.fed_forward(h if self.parallel else middle, ctx, exact), middle

    def attended(self, h: Tensor, rotation: Rotation | None, ctx: AttentionContext) -> Tensor:
        """What the mixer adds to h [N, D], its norms included: [N, D]."""
        return self._scaled(self.attn_post_norm(self.mixer(self.attn_norm(h), rotation, ctx)))

    def fed_forward(self, h: Tensor, ctx: AttentionContext, exact: bool) -> Tensor:
        """What the feed-forward adds to h [N, D], its norms included: [N, D]."""
        return self._scaled(self.mlp_post_norm(self.feed_forward(self.mlp_norm(h), ctx.bulk, exact)))

    def _scaled(self, x: Tensor) -> Tensor:
        return x if self.added == 1 else x * self.added


def blocks_of(layers: Iterable[nn.Module]) -> list[Block]:
    """Layers that are all blocks, by their type."""
    found = []
    for layer in layers:
        assert isinstance(layer, Block)
        found.append(layer)
    return found


def embedding_rows(weight: Tensor | BlockEmbedding, ids: Tensor) -> Tensor:
    """Rows of a table: weight [V, D], ids [N] -> [N, D]."""
    if isinstance(weight, BlockEmbedding):
        return weight(ids)  # type: ignore[no-any-return]
    return F.embedding(ids, weight)
