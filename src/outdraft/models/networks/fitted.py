"""A network seen with another number of tokens: pairs of models pad one vocabulary to different sizes.

    own rows   t0 t1 ... t9 | pad pad             logits of ids that the host has not: left out
    host's     t0 t1 ... t9 | pad pad pad pad     logits of ids that the network has not: -inf, it never guesses them

An id without an embedding reads the last one: no text has it, and what is guessed behind it is only a guess.
"""

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.models.networks.network import Network, RunOutput
from outdraft.nn.context import AttentionContext


class FittedNetwork:
    """A `Network` of `vocab_size` tokens over one of another number."""

    def __init__(self, network: Network, vocab_size: int) -> None:
        self.network = network
        self.own_size = network.config.vocab_size
        self.config = replace(network.config, vocab_size=vocab_size)
        self.exact = network.exact

    @property
    def dtype(self) -> torch.dtype:
        return self.network.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    @property
    def kernels(self) -> str:
        return self.network.kernels

    @property
    def num_parameters(self) -> int:
        return self.network.num_parameters

    @property
    def pass_bytes(self) -> int:
        return self.network.pass_bytes

    @property
    def ids(self) -> Tensor:
        """Which token each row of the network's own head is [V']; -1: none."""
        own = torch.arange(self.own_size)
        return own.masked_fill(own >= self.config.vocab_size, -1)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids [N], positions [N] -> [N, D]."""
        return self.network.embed(ids.clamp(max=self.own_size - 1), positions)

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
        """As the network's own."""
        return self.network.run(h, positions, ctx, start=start, stop=stop, skip=skip, taps=taps)

    def logits(self, h: Tensor) -> Tensor:
        """Final norm and head: [M, D] -> [M, V]."""
        return self._fit(self.network.logits(h))

    def norm(self, h: Tensor) -> Tensor:
        """The final norm alone: [M, D] -> [M, D]."""
        return self.network.norm(h)

    def head(self, h: Tensor) -> Tensor:
        """The head alone: [M, D] -> [M, V]."""
        return self._fit(self.network.head(h))

    def _fit(self, own: Tensor) -> Tensor:
        """Logits [M, V'] -> [M, V]."""
        more = self.config.vocab_size - self.own_size
        return torch.nn.functional.pad(own, (0, more), value=-torch.inf)  # a negative number cuts


def unfitted(network: Network) -> Network:
    """The network itself."""
    return network.network if isinstance(network, FittedNetwork) else network
