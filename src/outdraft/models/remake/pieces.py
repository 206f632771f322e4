"""A model's weights read piece by piece, and rounded on the way if that is asked for: a layer, or what stands at the
ends (embeddings, final norm, head). Who packs a piece and lets it go never holds the model twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from outdraft.kernels.decoder.stack import Stack
from outdraft.kernels.library import wanted_kind
from outdraft.kernels.threads import num_threads, torch_threads
from outdraft.models.files.load import StoredWeights, tensors_of
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import Block, make_norm
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.native import NativeDecoder, any_norm_of, parts_of, shape_of, weight_of
from outdraft.models.remake.quantize import require_roundable, round_maps, share_parameters
from outdraft.nn.quant.config import QuantConfig

Piece = TypeVar("Piece", bound=nn.Module)
_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The pieces of a model for a CPU. Raises `ConfigError` for a rounding that does not fit the model."""

    stored: StoredWeights
    rounding: QuantConfig | None = None  # of weights that are not rounded in the files

    def __post_init__(self) -> None:
        if self.rounding is not None:
            require_roundable(self.stored.config, self.rounding)

    @property
    def config(self) -> ModelConfig:
        """The configuration of the model that the pieces belong to."""
        rounding = self.rounding
        if rounding is None:
            return self.stored.config
        return replace(self.stored.config, quant=rounding, variant=rounding.variant)

    def layer(self, index: int) -> Block:
        """Layer `index`, read now. Raises `ModelLoadError`."""
        return self._read(lambda config: Block(config, index, self.stored.dtype, _CPU), f"layers.{index}.")

    def ends(self) -> Decoder:
        """Everything but the layers, read now. Raises `ModelLoadError`."""
        return self._read(lambda config: Decoder(config.of_layers(()), self.stored.dtype), "")

    def final_norm(self) -> nn.Module:
        """The final norm alone, in float32."""
        norm = make_norm(self.config, self.config.hidden_size, self.stored.dtype, _CPU)
        self.stored.fill({f"final_norm.{name}": tensor for name, tensor in tensors_of(norm).items()})
        return norm.float()

    def pack(self) -> NativeDecoder:
        """A decoder on the native kernels, packed in memory, a piece at a time. Raises `ModelLoadError`."""
        stack = self.empty_stack()
        for index in range(self.config.num_layers):
            stack.set_layer(index, parts_of(self.layer(index)))
        ends = self.ends()
        stack.set_head(weight_of(ends.lm_head), any_norm_of(ends.final_norm))
        return self.decoder(stack, ends.embedding.detach(), ends.final_norm.float())

    def empty_stack(self) -> Stack:
        """Of this shape, for the machine's kernels and as many threads as PyTorch has now."""
        return Stack(shape_of(self.config), self.config.num_layers, threads=num_threads(), kind=wanted_kind() or "")

    def decoder(self, stack: Stack, embedding: Tensor, final_norm: nn.Module) -> NativeDecoder:
        """Over weights that are packed. embedding: [V, D] bfloat16; final_norm: in float32."""
        counted = Decoder(self.config, self.stored.dtype, "meta").num_parameters
        return NativeDecoder.over(self.config, stack, embedding, final_norm.requires_grad_(False), counted)

    @torch.no_grad()
    def _read(self, make: Callable[[ModelConfig], Piece], prefix: str) -> Piece:
        with torch_threads(1):  # copies wait for memory; on busy cores several threads would wait for each other
            piece = make(self.stored.config)
            self.stored.fill({prefix + name: tensor for name, tensor in tensors_of(piece).items()})
            if self.rounding is None:
                return piece
            rounded = make(self.config)
            share_parameters(rounded, piece)
            round_maps(rounded, piece)
            return rounded
