"""A decoder on the native kernels: packed once, then one call a pass.

What the kernels know is Llama's shape: RMSNorm, gated SiLU, rotary positions over a bfloat16 cache, with or without
biases, query/key norms, windows (`can_pack`). Hidden states and logits are float32, so that a pass that stops and
resumes at a layer has the bits of one that does not.
"""

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from outdraft.core.errors import CapabilityError
from outdraft.core.skip import NO_SKIP, Skip
from outdraft.core.target import after_attention
from outdraft.kernels.decoder.matrix import STEP, Weight
from outdraft.kernels.decoder.stack import LayerParts, Span, Stack, StackShape
from outdraft.kernels.library import wanted_kind
from outdraft.models.base import Decoder
from outdraft.models.block import Block, embedding_rows
from outdraft.models.config import ModelConfig
from outdraft.models.network import RunOutput
from outdraft.nn.context import AttentionContext, WatchedContext
from outdraft.nn.linear import LinearMap
from outdraft.nn.quant.linear import QuantLinear
from outdraft.nn.rope import Rope


def can_pack(config: ModelConfig, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernels know this shape, and were built."""
    known = (
        config.norm in ("rms", "rms32")
        and config.pre_norm
        and not config.post_norm
        and not config.qk_norm_whole
        and (config.embedding_scale, config.residual_scale, config.logit_scale) == (1, 1, 1)
        and (config.score_cap, config.logit_cap) == (None, None)
        and not config.ropes
        and config.gated_mlp
        and config.activation in ("silu", "swish")
        and not config.parallel_residual
        and not config.learned_positions
        and config.rope is not None
        and config.rope.query_growth == 0
        and all(width % STEP == 0 for width in (config.hidden_size, config.intermediate_size, config.head_dim))
        and config.head_dim <= 512
    )
    return known and dtype == torch.bfloat16 and device.type == "cpu" and wanted_kind() is not None


class NativeDecoder:
    """A decoder's weights, packed for PyTorch's present number of threads. No row's bits depend on the rows beside it.

    `release`: empty the decoder's layers as they are packed, so that memory holds the weights once.
    """

    exact = True

    def __init__(self, decoder: Decoder, *, release: bool = False) -> None:
        if not can_pack(decoder.config, decoder.dtype, decoder.device):
            raise CapabilityError(
                f"the native kernels do not know this decoder: {decoder.config.architecture} in {decoder.dtype} on "
                f"{decoder.device}; run it through PyTorch"
            )
        assert decoder.rope is not None
        self.config = decoder.config
        self.num_parameters = decoder.num_parameters
        self.embedding = decoder.embedding.detach()
        self.rope = decoder.rope
        self.final_norm = deepcopy(decoder.final_norm).float()
        self.stack = _pack(decoder, release)

    @property
    def dtype(self) -> torch.dtype:
        """Of the embeddings and of the cache."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    @property
    def pass_bytes(self) -> int:
        return self.stack.num_bytes

    @property
    def kernels(self) -> str:
        return self.stack.kind

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [N], positions [N] -> [N, D] float32."""
        return embedding_rows(self.embedding, ids).float()

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
        return run_packed(self.stack.run, self.config, self.rope, h, positions, ctx, layers, skip, taps)

    def logits(self, h: Tensor) -> Tensor:
        """Final norm and head: [M, D] -> [M, V] float32."""
        return self.stack.logits(h.float(), norm=True)

    def norm(self, h: Tensor) -> Tensor:
        """The final norm alone: [M, D] -> [M, D] float32."""
        return self.final_norm(h.float())  # type: ignore[no-any-return]

    def head(self, h: Tensor) -> Tensor:
        """The head alone, for states that are normed already: [M, D] -> [M, V] float32."""
        return self.stack.logits(h.float(), norm=False)


def run_packed(
    run: Callable[..., None],
    config: ModelConfig,
    rope: Rope,
    h: Tensor,
    positions: Tensor,
    ctx: AttentionContext,
    layers: range,
    skip: Skip,
    taps: Collection[int],
) -> RunOutput:
    """`layers` over h [N, D] at positions [N] by `run`, which takes what `Stack.run` takes.

    What `taps` and `ctx` want is kept.
    """
    h = h.to(torch.float32, copy=True)
    places = positions.tolist()
    cos, sin = rope.table(max(places) + 1, h.dtype, h.device)
    taken = {layers.start: h.clone()} if layers.start in taps else {}
    states = {i: torch.empty_like(h) for i in layers if i + 1 in taps}
    middles = {i: torch.empty_like(h) for i in layers if after_attention(i) in taps}
    queries = ctx.queries if isinstance(ctx, WatchedContext) else {}
    if isinstance(ctx, WatchedContext):
        shape = (len(h), config.num_heads, config.head_dim)
        queries.update({i: torch.empty(shape) for i in layers if i not in skip.attention})
    run(h, places, cos, sin, spans_of(ctx), layers, skip=skip, taps=states, middles=middles, queries=queries)
    taken |= {after_attention(i): state for i, state in middles.items()}
    return RunOutput(hidden=h, taps=taken | {i + 1: state for i, state in states.items()})


def spans_of(ctx: AttentionContext) -> Sequence[Span]:
    """Where the rows of a pass stand; raises `CapabilityError` where there is no cache."""
    spans = ctx.spans()
    if spans is None:
        raise CapabilityError("native kernels run over a cache: this context has none")
    return spans


def _pack(decoder: Decoder, release: bool) -> Stack:
    stack = Stack(
        shape_of(decoder.config), decoder.config.num_layers, threads=torch.get_num_threads(), kind=wanted_kind() or ""
    )
    for index, layer in enumerate(decoder.layers):
        assert isinstance(layer, Block)
        stack.set_layer(index, parts_of(layer))
        if release:
            decoder.layers[index] = nn.Identity()
    stack.set_head(weight_of(decoder.lm_head), norm_of(decoder.final_norm))
    return stack


def shape_of(config: ModelConfig) -> StackShape:
    """The widths, for `Stack`."""
    assert config.rope is not None
    return StackShape(
        hidden=config.hidden_size,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        inner=config.intermediate_size,
        vocab=config.vocab_size,
        rotary=config.rope.dim,
        eps=config.norm_eps,
        scale=config.head_dim**-0.5 if config.score_scale is None else config.score_scale,
    )


def parts_of(layer: Block) -> LayerParts:
    """One layer, for `Stack.set_layer`."""
    return LayerParts(
        qkv=weight_of(layer.qkv),
        out=weight_of(layer.out),
        up=weight_of(layer.up),
        down=weight_of(layer.down),
        attn_norm=None if isinstance(layer.attn_norm, nn.Identity) else norm_of(layer.attn_norm),
        mlp_norm=norm_of(layer.mlp_norm),
        q_norm=norm_of(layer.q_norm) if layer.q_norm is not None else None,
        k_norm=norm_of(layer.k_norm) if layer.k_norm is not None else None,
        window=layer.window or 0,
    )


def weight_of(linear: LinearMap) -> Weight:
    """A linear map, ready to be packed."""
    bias = linear.bias.detach().float().contiguous() if linear.bias is not None else None
    if isinstance(linear, QuantLinear):
        return Weight(
            bits=linear.bits, values=linear.qweight, scales=linear.scales, bias=bias, group=linear.group_size
        )  # fmt: skip
    return Weight(bits=16, values=linear.matrix().detach().contiguous(), bias=bias)


def norm_of(norm: nn.Module) -> Tensor:
    """A norm's weight, [D] float32."""
    weight = norm.weight
    assert isinstance(weight, Tensor)
    return weight.detach().float().contiguous()
