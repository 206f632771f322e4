"""What the engine and the drafters see of a language model: embeddings, layers, head, over flat ragged rows.

`Decoder` computes through PyTorch, `NativeDecoder` on our kernels; `load_network` chooses.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.context import AttentionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """Hidden states after the layers that ran."""

    hidden: Tensor  # [N, D] before the final norm
    taps: dict[int, Tensor] = field(default_factory=dict)  # after i layers -> [N, D]; 0 = the embeddings


class Network(Protocol):
    """A causal language model that runs: `Decoder` through PyTorch, `models.native.NativeDecoder` on our kernels."""

    config: ModelConfig
    exact: bool  # no row's bits depend on the rows beside it

    @property
    def dtype(self) -> torch.dtype:
        """Of the embeddings and of the cache."""

    @property
    def device(self) -> torch.device: ...

    @property
    def kernels(self) -> str:
        """Who computes: "pytorch", or the native kernels' instruction set."""

    @property
    def num_parameters(self) -> int:
        """How many numbers the weights hold, tied ones counted once."""

    @property
    def pass_bytes(self) -> int:
        """Bytes of weights that one pass reads: all but the embedding table."""

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [N], positions [N] -> [N, D]."""

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
        """Layers start..stop, but for what `skip` leaves out, over h [N, D]."""

    def logits(self, h: Tensor) -> Tensor:
        """Final norm and head: [M, D] -> [M, V]."""

    def norm(self, h: Tensor) -> Tensor:
        """The final norm alone: [M, D] -> [M, D]."""

    def head(self, h: Tensor) -> Tensor:
        """The head alone, for states that are normed already: [M, D] -> [M, V]."""
