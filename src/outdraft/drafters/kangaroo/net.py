"""The adapter behind the first layers: one attention with a memory of its own, and two norms.

    h_E --+-- norm -- attention --(+)-- norm --> the target's head, or its rows of the draft's tokens
          +------------------------+

Liu et al., "Kangaroo", 2024, https://arxiv.org/abs/2404.18911. Data: states after E layers [N, D] -> what the head
reads [N, D].
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.core.skip import Skip
from outdraft.drafters.shared.learning.vocab import STORED, CutHead, stored, vocab_in
from outdraft.kernels.decoder.matrix import STEP, Weight
from outdraft.kernels.decoder.stack import LayerParts, Stack
from outdraft.models.files.head_files import load_head, save_head
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import Attention, make_linear
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.native import NativeDecoder, PackedNetwork, can_pack, norm_of, shape_of
from outdraft.models.networks.packable import weight_of
from outdraft.models.networks.parts import PartPlace
from outdraft.models.networks.port import TargetPort, lent_parts
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear
from outdraft.nn.norm import RMSNorm
from outdraft.nn.rope import Rope, RopeConfig, RopeTables

MODEL_TYPE = "outdraft_kangaroo"
_ATTENTION = Skip(mlp=frozenset({0}))


@dataclass(frozen=True, slots=True, kw_only=True)
class KangarooConfig:
    """Where it exits, and the sizes of the attention."""

    exit_layer: int  # E: it reads the state after layers 0..E-1
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    draft_vocab_size: int = 0  # of the target's tokens those that can be guessed; 0: all

    @property
    def layers(self) -> ModelConfig:
        """As one layer of a decoder."""
        return ModelConfig(
            architecture="llama",
            vocab_size=1,
            hidden_size=self.hidden_size,
            num_layers=1,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_dim=self.head_dim,
            intermediate_size=1,
            max_len=1,
            norm_eps=self.norm_eps,
            rope=RopeConfig(dim=self.head_dim, theta=self.rope_theta),
        )


class KangarooAdapter(nn.Module):
    """`exact`: no row's bits depend on the rows beside it (inference). `vocab` [V']: the target's ids of its tokens."""

    def __init__(
        self,
        config: KangarooConfig,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        vocab: Tensor | None = None,
    ) -> None:
        super().__init__()
        device, layers = torch.device(device), config.layers
        self.config = config
        self.vocab: Tensor | None
        self.register_buffer("vocab", vocab if vocab is None else vocab.to(device), persistent=False)
        self.lm_head: Linear | None = None  # rows of the target's head, once they are lent
        place = PartPlace(
            index=0,
            width=config.hidden_size,
            dtype=dtype,
            device=device,
            linear=lambda name, num_in, num_out, bias: make_linear(layers, name, num_in, num_out, bias, dtype, device),
        )
        self.attn_norm = RMSNorm(config.hidden_size, config.norm_eps, dtype, device)
        self.attention = Attention(layers, place)
        self.norm = RMSNorm(config.hidden_size, config.norm_eps, dtype, device)
        assert layers.rope is not None
        self.rope = Rope(layers.rope)

    def forward(self, h: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """States after E layers [N, D] at positions [N] -> [N, D]; the context keeps keys and values."""
        own = h.to(self.norm.weight.dtype)  # native kernels hand over float32
        mixed = self.attention(self.attn_norm(own), self.rope.at(positions, own.dtype), ctx)
        out: Tensor = self.norm(own + mixed)
        return out

    def borrow(self, target: Decoder | TargetPort) -> None:
        """Take the target's head, or its rows of the draft's tokens. Raises `CapabilityError` for one that caps."""
        self._target_head = lent_parts(target).head  # a bound method: its weights are no parameters of this module
        if self.vocab is not None:
            self.lm_head = CutHead(target, self.vocab, self.norm.weight.dtype, None)

    def logits(self, states: Tensor) -> Tensor:
        """[N, D] -> [N, V], or [N, V'] of its own vocabulary."""
        return self._target_head(states) if self.lm_head is None else self.lm_head(states)  # type: ignore[no-any-return]


class NativeAdapter(PackedNetwork):
    """The adapter on the kernels that run its target, with the maps that it has now, rounded or not: a layer without a
    feed-forward half, and the head behind a norm. States leave it before that norm."""

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


def save_adapter(adapter: KangarooAdapter, directory: Path, vocab_size: int, dtype: torch.dtype | None = None) -> None:
    """config.json and model.safetensors. `vocab_size`: the target's."""
    beside = stored(adapter.vocab, vocab_size)
    save_head(adapter, adapter.config, directory, model_type=MODEL_TYPE, dtype=dtype, beside=beside)


def load_adapter(directory: Path, vocab_size: int, dtype: torch.dtype, device: torch.device) -> KangarooAdapter:
    """The adapter in `directory`, whatever its target, which has `vocab_size` tokens.

    Raises `ModelLoadError` if it is another kind of model.
    """

    def make(config: KangarooConfig, at: torch.device | None) -> KangarooAdapter:
        vocab = None if at else vocab_in(directory, config.draft_vocab_size, vocab_size)
        return KangarooAdapter(config, dtype, at or device, vocab)

    return load_head(directory, KangarooConfig, make, model_type=MODEL_TYPE, what="Kangaroo adapter", beside=STORED)
