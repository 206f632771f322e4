"""A model's weights read piece by piece, and rounded on the way if that is asked for: a layer, or what stands at the
ends (embeddings, final norm, head). Who packs a piece and lets it go never holds the model twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import nn

from outdraft.kernels.threads import torch_threads
from outdraft.models.files.load import StoredWeights, tensors_of
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import Block, make_norm
from outdraft.models.networks.config import ModelConfig
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
