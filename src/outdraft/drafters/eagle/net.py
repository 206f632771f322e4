"""EAGLE's network: one decoder layer that extrapolates the target's features, one token at a time.

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840.

    taps (low, mid, high) -- norms -- fuse --> f_i --+-----------------------(+)-- block --> g_i -- norm, target's head
    embedding of x_{i+1} ----- norm -----> join -----+---> join(e, f) --------+         predicts x_{i+2}

Pair i is (feature of position i, embedding of token i + 1); its position id is i; it predicts token i + 2. Where the
target has not been yet, g of the pair before stands in for f. The head is the target's own, handed over at load.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.features.network import FeatureNet, NativeParts
from outdraft.drafters.shared.learning.vocab import STORED, CutHead, stored, vocab_in
from outdraft.kernels.decoder.entrance import Entrance
from outdraft.models.files.head_files import load_head, save_head
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import Block
from outdraft.models.networks.config import llama_config
from outdraft.models.networks.native import NativeDecoder, norm_of, parts_of
from outdraft.models.networks.packable import weight_of
from outdraft.models.networks.port import TargetPort, facts_of, lent_parts
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear
from outdraft.nn.norm import RMSNorm
from outdraft.nn.rope import Rope
from outdraft.options.errors import CapabilityError

MODEL_TYPE = "outdraft_eagle"


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleConfig:
    """Which hidden states it reads, and the shape of its layer."""

    taps: tuple[int, ...]  # tap t: the target's hidden state after t layers
    hidden_size: int  # the target's
    vocab_size: int  # the target's
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_len: int
    draft_vocab_size: int = 0  # of the target's tokens those that it says; 0: all
    num_layers: int = 1
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5


class EagleNet(FeatureNet):
    """The network; all rows flat, attention through the context's layer 0."""

    def __init__(
        self,
        config: EagleConfig,
        target: Decoder | TargetPort,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        vocab: Tensor | None = None,
    ) -> None:
        known = facts_of(target)
        if (config.hidden_size, config.vocab_size) != (known.hidden_size, known.vocab_size):
            raise CapabilityError(
                f"an EAGLE network of width {config.hidden_size} and vocabulary {config.vocab_size} cannot draft for a "
                f"target of {known.hidden_size} and {known.vocab_size}: it belongs to its own target"
            )
        if config.num_layers != 1:
            raise CapabilityError(f"an EAGLE network has one layer, and num_layers={config.num_layers} asks for others")
        device = device or facts_of(target).device
        width, eps = config.hidden_size, config.norm_eps
        shape = llama_config(
            vocab_size=config.vocab_size,
            hidden_size=width,
            num_layers=1,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            intermediate_size=config.intermediate_size,
            max_len=config.max_len,
            rope_theta=config.rope_theta,
            norm_eps=eps,
        )
        assert shape.rope is not None
        super().__init__(shape, tuple(config.taps), vocab if vocab is None else vocab.to(device))
        self.config = config
        self.tap_norms = nn.ModuleList(RMSNorm(width, eps, dtype, device) for _ in config.taps)
        self.fusion = Linear(len(config.taps) * width, width, False, dtype, device)
        self.token_norm = RMSNorm(width, eps, dtype, device)
        self.feature_norm = RMSNorm(width, eps, dtype, device)
        self.join = Linear(2 * width, width, False, dtype, device)
        self.block = Block(shape, 0, dtype, device)
        self.norm = RMSNorm(width, eps, dtype, device)
        self.rope = Rope(shape.rope)
        self._target_head = lent_parts(target).head  # a bound method: its weights are no parameters of this module
        self.lm_head: Linear | None = None if vocab is None else CutHead(target, vocab, dtype, device)

    def fuse(self, taps: Sequence[Tensor]) -> Tensor:
        """The target's hidden states, one [N, D] a tap -> features [N, D]."""
        own = self.fusion.dtype  # native kernels hand over float32
        normed = [norm(tap.to(own)) for norm, tap in zip(self.tap_norms, taps, strict=True)]
        fused: Tensor = self.fusion(torch.cat(normed, -1))
        return fused

    def run(self, token_embed: Tensor, f: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """Embeddings [N, D] of the next tokens and features [N, D] at `positions` [N] -> g [N, D]."""
        both = torch.cat((self.token_norm(token_embed.to(f.dtype)), self.feature_norm(f)), -1)  # [N, 2 D]
        out: Tensor = self.block(f + self.join(both, ctx.bulk), self.rope.at(positions, f.dtype), ctx, self.exact)[0]
        return out

    def logits(self, g: Tensor) -> Tensor:
        """Own norm, the target's head, or its rows of the draft's tokens: [N, D] -> [N, V] or [N, V']."""
        normed = self.norm(g)
        return self._target_head(normed) if self.lm_head is None else self.lm_head(normed)  # type: ignore[no-any-return]

    def native_parts(self, target: NativeDecoder) -> NativeParts:
        config = self.config
        entrance = Entrance(
            num_taps=len(config.taps),
            tap_width=config.hidden_size,
            tap_eps=config.norm_eps,
            tap_norms=torch.stack([norm_of(norm) for norm in self.tap_norms]),
            fusion=weight_of(self.fusion),
            token_norm=norm_of(self.token_norm),
            feature_norm=norm_of(self.feature_norm),
            join=weight_of(self.join),
        )
        layers = [parts_of(self.block)]
        return NativeParts(layers=layers, rope=self.rope, entrance=entrance, norm=self.norm, head=self.lm_head)


def save_eagle(net: EagleNet, directory: Path, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors."""
    beside = stored(net.vocab, net.config.vocab_size)
    save_head(net, net.config, directory, model_type=MODEL_TYPE, dtype=dtype, beside=beside)


def load_eagle(directory: Path, target: Decoder | TargetPort, dtype: torch.dtype | None = None) -> EagleNet:
    """The network in `directory` for this target, in the target's type unless `dtype` is given."""

    def make(config: EagleConfig, device: torch.device | None) -> EagleNet:
        vocab = None if device else vocab_in(directory, config.draft_vocab_size, config.vocab_size)
        return EagleNet(config, target, dtype or facts_of(target).dtype, device, vocab)

    return load_head(directory, EagleConfig, make, model_type=MODEL_TYPE, what="EAGLE network", beside=STORED)
