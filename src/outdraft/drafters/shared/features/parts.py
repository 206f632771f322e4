"""What a network at feature level is on the native kernels: each part by the name that it has there.

    taps -- norms -- fusion --> f --+-- [norms] -- [join] --> layers --> g -- [norm] -- head --> logits
    embedding of the next token ----+

Data: plain records; the matrices are those of the network, which may have been rounded.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from torch import Tensor, nn

from outdraft.kernels.decoder.entrance import Entrance
from outdraft.kernels.decoder.stack import LayerParts
from outdraft.nn.linear import LinearMap
from outdraft.nn.rope import Rope


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeParts:
    """The parts of one network. The norms of the entrance and before the head have the layers' `norm_eps`."""

    layers: Seq[LayerParts]
    rope: Rope
    entrance: Entrance
    norm: nn.Module | None = None  # before the head; None: the outputs are normed already
    head: LinearMap | None = None  # None: the target's
    embedding: Tensor | None = None  # [V, D]; None: the target's
