"""A decoder on the native kernels: packed once, then one call a pass.

What the kernels know (`find_unknown` says what they do not): norms before and behind each half, RMSNorm or LayerNorm,
SiLU or tanh GELU, gated or not, rotary positions of several kinds over a bfloat16 cache, biases, query/key norms,
windows, scales, soft caps, parallel halves. Hidden states and logits are float32, so that a pass that stops and
resumes at a layer has the bits of one that does not.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import after_attention
from outdraft.kernels.decoder.blocks import BlockWeight
from outdraft.kernels.decoder.matrix import STEP
from outdraft.kernels.decoder.rows import Span
from outdraft.kernels.decoder.stack import LayerParts, Stack, StackShape
from outdraft.kernels.library import wanted_kind
from outdraft.kernels.threads import num_threads
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import MLP, Attention, Block, embedding_rows, make_norm
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.network import RunOutput
from outdraft.models.networks.packable import weight_of
from outdraft.nn.context import AttentionContext, WatchedContext
from outdraft.nn.norm import LayerNorm
from outdraft.nn.quant.block_linear import BlockEmbedding
from outdraft.nn.rope import RopeTables
from outdraft.options.errors import CapabilityError

_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def can_pack(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernels know this shape, and were built."""
    return (
        dtype == torch.bfloat16 and device.type == "cpu" and wanted_kind() is not None and find_unknown(config) is None
    )


def find_unknown(config: ModelConfig) -> str | None:
    """What of this shape the kernels do not know, in words; None: they know all of it."""
    kinds = config.rope_kinds()
    widths = (config.hidden_size, config.intermediate_size, config.head_dim)
    others = [type(kind).__name__ for kind in (*config.mixers, *config.feed_forwards) if kind is not None]
    unknown = {
        f"layers of {', '.join(dict.fromkeys(others))}": bool(others),
        f"the activation {config.activation}": config.activation not in _ACTIVATIONS,
        "learned positions": config.learned_positions or not kinds,
        "rotary positions of several widths": len({kind.dim for kind in kinds}) > 1,
        "queries that grow in several ways": len({(kind.query_growth, kind.original_max_len) for kind in kinds}) > 1
        and any(kind.query_growth for kind in kinds),
        "a layer norm of queries and keys": config.norm == "layer" and config.qk_norm,
        "parallel halves without a norm before them": config.parallel_residual and not config.pre_norm,
        f"widths that are no multiples of {STEP}": any(width % STEP for width in widths),
        "heads of more than 512 channels": config.head_dim > 512,
    }
    return next((what for what, there in unknown.items() if there), None)


class PackedNetwork:
    """A network over a `Stack`. No row's bits depend on the rows beside it."""

    exact = True
    config: ModelConfig
    stack: Stack
    kernels: str  # the stack's instruction set
    rope: RopeTables
    _norm: Tensor  # the final norm, as of `any_norm_of`

    @cached_property
    def final_norm(self) -> nn.Module:
        """In float32, for drafters that norm the target's states."""
        return norm_from(self.config, self._norm)

    def run(
        self,
        h: Tensor,
        positions: Tensor,
        ctx: AttentionContext,
        *,
        start: int = 0,
        stop: int | None = None,
        skip: Skip = NO_SKIP,
        taps: Collection[int] = (),
    ) -> RunOutput:
        """Layers start..stop, but for what `skip` leaves out, over h [N, D]; `ctx` must have a cache."""
        layers = range(start, self.config.num_layers if stop is None else stop)
        h = h.to(torch.float32, copy=True)
        places = positions.tolist()
        cos, sin = self.rope.table(max(places) + 1, h.dtype, h.device)
        taken = {start: h.clone()} if start in taps else {}
        states = {i: torch.empty_like(h) for i in layers if i + 1 in taps}
        middles = {i: torch.empty_like(h) for i in layers if after_attention(i) in taps}
        queries = ctx.queries if isinstance(ctx, WatchedContext) else {}
        if isinstance(ctx, WatchedContext):
            shape = (len(h), self.config.num_heads, self.config.head_dim)
            queries.update({i: torch.empty(shape) for i in layers if i not in skip.attention})
        kept = {"taps": states, "middles": middles, "queries": queries}
        self._compute(h, places, cos, sin, spans_of(ctx), layers, skip=skip, **kept)
        taken |= {after_attention(i): state for i, state in middles.items()}
        return RunOutput(hidden=h, taps=taken | {i + 1: state for i, state in states.items()})

    def logits(self, h: Tensor) -> Tensor:
        """Final norm and head: [M, D] -> [M, V] float32."""
        return self._head(h, norm=True)

    def norm(self, h: Tensor) -> Tensor:
        """The final norm alone: [M, D] -> [M, D] float32."""
        return self.final_norm(h.float())  # type: ignore[no-any-return]

    def head(self, h: Tensor) -> Tensor:
        """The head alone, for states that are normed already: [M, D] -> [M, V] float32."""
        return self._head(h, norm=False)

    def _compute(self, *rows: Any, **kept: Any) -> None:
        """As `Stack.run`."""
        self.stack.run(*rows, **kept)

    def _head(self, h: Tensor, *, norm: bool) -> Tensor:
        return self.stack.logits(h.float(), norm=norm)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeights:
    """A decoder's weights on the kernels."""

    config: ModelConfig
    stack: Stack
    embedding: Tensor | BlockEmbedding | None  # [V, D] bfloat16, or blocks; None: the head has its rows
    final_norm: Tensor  # as of `any_norm_of`
    num_parameters: int


class NativeDecoder(PackedNetwork):
    """A decoder whose weights are packed: now, for PyTorch's present number of threads, or before.

    `models/remake/native_files.py` makes one of a model's files, without a decoder between.
    """

    def __init__(self, weights: Decoder | PackedWeights) -> None:
        packed = _pack(weights) if isinstance(weights, Decoder) else weights
        self.config, self.num_parameters = packed.config, packed.num_parameters
        self.stack, self.kernels = packed.stack, packed.stack.kind
        self.embedding = table = packed.embedding
        self.table: Tensor | BlockWeight | Stack
        if isinstance(table, BlockEmbedding):
            self.table = BlockWeight(parts=table.blocks.held())
        else:
            self.table = self.stack if table is None else table
        self.embedding_scale = embedding_scale(self.config)
        self.dtype, self.device = torch.bfloat16, torch.device("cpu")
        self.rope = RopeTables(self.config.rope_kinds())
        self._norm = packed.final_norm

    @property
    def pass_bytes(self) -> int:
        return self.stack.num_bytes

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [N], positions [N] -> [N, D] float32."""
        rows = self.stack.rows(ids) if self.embedding is None else embedding_rows(self.embedding, ids).float()
        return rows if self.config.embedding_scale == 1 else rows * self.embedding_scale


def spans_of(ctx: AttentionContext) -> Sequence[Span]:
    """Where the rows of a pass stand; raises `CapabilityError` where there is no cache."""
    spans = ctx.spans()
    if spans is None:
        raise CapabilityError("the native kernels need a cache, and this context has none")
    return spans


def _pack(decoder: Decoder) -> PackedWeights:
    config, table, norm = decoder.config, decoder.embedding, any_norm_of(decoder.final_norm)
    if not can_pack(config, decoder.dtype, decoder.device):
        raise CapabilityError(
            f"the native kernels do not know this decoder: {config.architecture} in {decoder.dtype} on "
            f"{decoder.device}; run it through PyTorch"
        )
    assert norm is not None
    stack = Stack(shape_of(config), config.num_layers, threads=num_threads(), kind=wanted_kind() or "")
    for index, layer in enumerate(decoder.layers):
        assert isinstance(layer, Block)
        stack.set_layer(index, parts_of(layer))
    stack.set_head(weight_of(decoder.lm_head), norm)
    return PackedWeights(
        config=config,
        stack=stack,
        embedding=table if isinstance(table, BlockEmbedding) else table.detach(),
        final_norm=norm,
        num_parameters=decoder.num_parameters,
    )


def embedding_scale(config: ModelConfig) -> float:
    """What embeddings are multiplied by: rounded as the weights are, as Gemma's own code does."""
    return float(torch.tensor(config.embedding_scale, dtype=torch.bfloat16))


def shape_of(config: ModelConfig) -> StackShape:
    """The widths and scales, for `Stack`."""
    rope = config.rope_kinds()[0]
    return StackShape(
        hidden=config.hidden_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        inner=config.intermediate_size,
        vocab=config.vocab_size,
        rotary=rope.dim,
        eps=config.norm_eps,
        scale=config.head_dim**-0.5 if config.score_scale is None else config.score_scale,
        added=config.residual_scale,
        logit_scale=config.logit_scale,
        score_cap=config.score_cap or 0.0,
        logit_cap=config.logit_cap or 0.0,
        growth=rope.query_growth,
        first_len=rope.original_max_len or 1,
        activation=_ACTIVATIONS[config.activation],
        gated=config.gated_mlp,
        norm="layer" if config.norm == "layer" else "rms",
        norms_whole=config.qk_norm_whole,
        parallel=config.parallel_residual,
    )


def parts_of(layer: Block) -> LayerParts:
    """One layer, for `Stack.set_layer`."""
    mixer, mlp = layer.mixer, layer.feed_forward
    assert isinstance(mixer, Attention) and isinstance(mlp, MLP), "find_unknown names every other part"
    return LayerParts(
        qkv=weight_of(mixer.qkv),
        out=weight_of(mixer.out),
        up=weight_of(mlp.up),
        down=weight_of(mlp.down),
        attn_norm=any_norm_of(layer.attn_norm),
        mlp_norm=any_norm_of(layer.mlp_norm),
        attn_post=any_norm_of(layer.attn_post_norm),
        mlp_post=any_norm_of(layer.mlp_post_norm),
        q_norm=any_norm_of(mixer.q_norm),
        k_norm=any_norm_of(mixer.k_norm),
        window=mixer.window or 0,
        turns=mixer.turns,
    )


def any_norm_of(norm: nn.Module | None) -> Tensor | None:
    """A norm's weight [D] float32, a layer norm's followed by its bias [2 D]; None where there is no norm."""
    if norm is None or isinstance(norm, nn.Identity):
        return None
    weight = norm.weight
    assert isinstance(weight, Tensor)
    if not isinstance(norm, LayerNorm):
        return weight.detach().float().contiguous()
    bias = torch.zeros_like(weight) if norm.bias is None else norm.bias
    return torch.cat((weight, bias)).detach().float()


@torch.inference_mode(False)
@torch.no_grad()
def norm_from(config: ModelConfig, vector: Tensor) -> nn.Module:
    """The final norm of a model, in float32, from what `any_norm_of` gives of it."""
    norm = make_norm(config, config.hidden_size, torch.float32, vector.device)
    for parameter, values in zip(norm.parameters(), torch.split(vector, config.hidden_size), strict=False):
        parameter.copy_(values)
    return norm.requires_grad_(False)


def norm_of(norm: nn.Module) -> Tensor:
    """An RMSNorm's weight, [D] float32."""
    weight = any_norm_of(norm)
    assert weight is not None and not isinstance(norm, LayerNorm), "a guesser's own norms are RMSNorms"
    return weight
