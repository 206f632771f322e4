"""EAGLE-3's network, in the published layout.

Li et al., "EAGLE-3: scaling up inference acceleration of large language models via training-time test", 2025,
https://arxiv.org/abs/2503.01840; 3.1: https://github.com/vllm-project/speculators.

    taps -- [input_norm | fc_norm] -- fc --> f_i --+
    embedding of x_{i+1} --------------------------+-- layers --> g_i -- norm --+-- lm_head --> x_{i+2}, by d2t
                                                              |                 |
                                                              +-- f_{i+1} --  or with norm_output

The head is its own, over `draft_vocab_size` of the target's tokens. What is not in the files is the target's: its
embeddings, its head. With one state there is no fc: f_i is the target's last state behind its final norm.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from math import nan

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.features.network import FeatureNet, NativeParts
from outdraft.kernels.decoder.entrance import Entrance, FirstState
from outdraft.models.families.shared.naming import Entry, layer_entries
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import Block, blocks_of, make_linear, make_norm
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.native import NativeDecoder, norm_of, parts_of
from outdraft.models.networks.packable import weight_of
from outdraft.models.networks.port import TargetFacts, TargetPort, lent_parts
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear
from outdraft.nn.norm import RMSNorm
from outdraft.nn.rope import Rope, Rotation
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedConfig:
    """What a network is, whatever library wrote it: sizes, taps and flags. Tap t: the target's state after t layers.

    EAGLE-3.1 is `fc_norm` with `norm_output`.
    """

    layers: ModelConfig  # its own decoder layers; their vocabulary is the target's
    taps: tuple[int, ...]
    draft_vocab_size: int
    target_hidden_size: int
    norm_before_residual: bool = False  # the first layer's residual is the normed feature
    norm_before_fc: bool = False  # one norm over all taps side by side
    fc_norm: bool = False  # a norm for each tap
    norm_output: bool = False  # what is carried to the next step is normed
    one_state: bool = False  # the feature is the target's last state behind its final norm, as in EAGLE-1: no `fc`
    own_head: bool = True  # False: the target's head scores what `norm` gives
    own_embedding: bool = False
    train_embedding: bool = False  # `embed_requires_grad`
    mask_token_id: int | None = None  # stands for a token that is not there yet, and `mask_hidden` for its states
    num_depths: int = 1  # tokens that one pass guesses, all but the first by rows of masks

    def require(self, known: TargetFacts) -> None:
        """Raise `CapabilityError` unless it can draft for this target."""
        if (self.target_hidden_size, self.layers.vocab_size) != (known.hidden_size, known.vocab_size):
            raise CapabilityError(
                f"an EAGLE-3 network for width {self.target_hidden_size} and vocabulary {self.layers.vocab_size} "
                f"cannot draft for a target of {known.hidden_size} and {known.vocab_size}: it belongs to its own target"
            )
        if max(self.taps) > known.num_layers or min(self.taps) < 0:
            raise CapabilityError(
                f"an EAGLE-3 network that reads the states after {self.taps} layers cannot draft for a target of "
                f"{known.num_layers} layers: it belongs to another one"
            )
        if (self.one_state or not self.own_head) and self.layers.hidden_size != known.hidden_size:
            lacking = "fc.weight" if self.one_state else "lm_head.weight"
            raise CapabilityError(
                f"an EAGLE-3 network of width {self.layers.hidden_size} without {lacking} reads the target's own, "
                f"which has width {known.hidden_size}: it belongs to another one"
            )
        if not self.own_embedding and self.layers.hidden_size != known.hidden_size:
            raise CapabilityError(
                f"an EAGLE-3 network of width {self.layers.hidden_size} without embeddings of its own cannot read "
                f"those of a target of width {known.hidden_size}: its file must bring embed_tokens.weight"
            )


class WideBlock(Block):
    """Layer 0: attention over embedding and feature side by side, the residual over the feature alone.

        e -- input norm --+
                          cat [N, 2 D] -- q, k, v -- attention --(+)--+-- norm -- mlp --(+)-- g
        f -- hidden norm -+                                       |   +-----------------+
          +-------------------------------------------------------+     (`normed`: what the hidden norm made of it)

    `normed`: whether the residual is the normed feature (`norm_before_residual`).
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, device: torch.device, *, normed: bool) -> None:
        super().__init__(config, 0, dtype, device)
        width, heads = config.hidden_size, config.num_heads + 2 * config.num_kv_heads
        self.hidden_norm = make_norm(config, width, dtype, device)
        self.qkv = make_linear(
            config, "layers.0.qkv", 2 * width, heads * config.head_dim, config.qkv_bias, dtype, device
        )
        self.normed = normed

    def join(self, e: Tensor, f: Tensor, rotation: Rotation | None, ctx: AttentionContext, exact: bool) -> Tensor:
        """Embeddings and features [N, D] -> [N, D]."""
        told = self.hidden_norm(f)
        mixed = self.mixer(torch.cat((self.attn_norm(e), told), -1), rotation, ctx)
        middle = (told if self.normed else f) + mixed
        out: Tensor = middle + self.feed_forward(self.mlp_norm(middle), ctx.bulk, exact)
        return out


class FusedNet(FeatureNet):
    """The network; all rows flat. `vocab` [V']: the target's ids of the draft's tokens; None: all of them.

    lent: the target, whose norm and head are used with one state, or without a head of its own.
    """

    def __init__(
        self,
        config: FusedConfig,
        dtype: torch.dtype,
        device: torch.device,
        vocab: Tensor | None = None,
        lent: Decoder | TargetPort | None = None,
    ) -> None:
        layers = config.layers
        super().__init__(layers, config.taps, vocab if vocab is None else vocab.to(device))
        width, eps, count = layers.hidden_size, layers.norm_eps, len(config.taps)
        wide = config.target_hidden_size

        def norm(size: int) -> RMSNorm:
            return RMSNorm(size, eps, dtype, device)

        self.config = config
        self.input_norm = norm(count * wide) if config.norm_before_fc else None
        self.fc_norm = nn.ModuleList(norm(wide) for _ in config.taps) if config.fc_norm else None
        self.fc = None if config.one_state else Linear(count * wide, width, False, dtype, device)
        self.first = WideBlock(layers, dtype, device, normed=config.norm_before_residual)
        self.others = nn.ModuleList(Block(layers, i, dtype, device) for i in range(1, layers.num_layers))
        self.norm = norm(width)
        self.lm_head = Linear(width, config.draft_vocab_size, False, dtype, device) if config.own_head else None
        self.mask_hidden: nn.Parameter | None = None  # [1, 1, k * Dt] the states of k taps that are not there yet
        if config.mask_token_id is not None:
            self.mask_hidden = nn.Parameter(torch.full((1, 1, count * wide), nan, dtype=dtype, device=device))
        parts = None if lent is None else lent_parts(lent)
        self._target_norm = None if parts is None else parts.norm
        self._target_head = None if parts is None else parts.head
        if config.own_embedding:
            self.embedding = self.own_embedding(dtype, device, trains=config.train_embedding)
        assert layers.rope is not None
        self.rope = Rope(layers.rope)

    @property
    def mask_taps(self) -> tuple[Tensor, ...]:
        """What stands for the states of a token that the target has not read: one [1, Dt] a tap."""
        assert self.mask_hidden is not None
        return self.mask_hidden[0].chunk(len(self.config.taps), -1)

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights, and of what is drafted with them."""
        return self.norm.weight.dtype  # type: ignore[return-value]

    def fuse(self, taps: Seq[Tensor]) -> Tensor:
        if self.fc is None:
            assert self._target_norm is not None
            return self._target_norm(taps[0]).to(self.dtype)
        told = [tap.to(self.dtype) for tap in taps]  # native kernels hand over float32
        if self.fc_norm is not None:
            told = [norm(tap) for norm, tap in zip(self.fc_norm, told, strict=True)]
        beside = torch.cat(told, -1)
        if self.input_norm is not None:
            beside = self.input_norm(beside)
        out: Tensor = self.fc(beside)
        return out

    def run(self, embeds: Tensor, f: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        rotation = self.rope.at(positions, f.dtype)
        g = self.first.join(embeds.to(f.dtype), f, rotation, ctx, self.exact)
        for layer in self.others:
            g = layer(g, rotation, ctx, self.exact)[0]
        return g

    def carry(self, g: Tensor) -> Tensor:
        """The output, or with `norm_output` the normed one."""
        return self.norm(g) if self.config.norm_output else g  # type: ignore[no-any-return]

    def logits(self, g: Tensor) -> Tensor:
        """Own norm, and own head or the target's: [N, D] -> [N, V']."""
        normed = self.norm(g)
        if self.lm_head is not None:
            return self.lm_head(normed)  # type: ignore[no-any-return]
        assert self._target_head is not None
        whole = self._target_head(normed)
        return whole if self.vocab is None else whole[:, self.vocab]

    def native_parts(self, target: NativeDecoder) -> NativeParts:
        config, first = self.config, self.first
        tap_norms, tap_eps = None, self.shape.norm_eps
        if config.one_state:
            tap_norms, tap_eps = norm_of(target.final_norm), target.config.norm_eps
        elif self.input_norm is not None:
            tap_norms = norm_of(self.input_norm).view(len(config.taps), -1)
        elif self.fc_norm is not None:
            tap_norms = torch.stack([norm_of(norm) for norm in self.fc_norm])
        entrance = Entrance(
            num_taps=len(config.taps),
            tap_width=config.target_hidden_size,
            tap_eps=tap_eps,
            tap_norms=tap_norms,
            one_tap_norm=self.input_norm is not None,
            fusion=None if self.fc is None else weight_of(self.fc),
            token_norm=norm_of(first.attn_norm),
            feature_norm=norm_of(first.hidden_norm),
            origin=FirstState.NORMED_FEATURE if first.normed else FirstState.FEATURE,
            norms_carried=config.norm_output,
        )
        layers = [replace(parts_of(first), attn_norm=None), *map(parts_of, blocks_of(self.others))]
        return NativeParts(
            layers=layers,
            rope=self.rope,
            entrance=entrance,
            norm=self.norm,
            head=self.lm_head,
            embedding=self.embedding,
        )


def entries_of(config: FusedConfig) -> Iterable[Entry]:
    """Which of our parameters each published tensor is (names as speculators spells them)."""

    def same(name: str) -> Entry:
        return Entry(ours=name, theirs=(name,))

    yield same("norm.weight")
    if config.mask_token_id is not None:
        yield same("mask_hidden")
    if not config.one_state:
        yield same("fc.weight")
    if config.own_head:
        yield same("lm_head.weight")
    if config.norm_before_fc:
        yield same("input_norm.weight")
    if config.fc_norm:
        yield from (same(f"fc_norm.{i}.weight") for i in range(len(config.taps)))
    if config.own_embedding:
        yield Entry(ours="embedding", theirs=("embed_tokens.weight",))
    yield Entry(ours="first.hidden_norm.weight", theirs=("layers.0.hidden_norm.weight",))
    yield from layer_entries("first", "layers.0", config.layers)
    for i in range(1, config.layers.num_layers):
        yield from layer_entries(f"others.{i - 1}", f"layers.{i}", config.layers)
