"""A network seen with another number of tokens: pairs of models pad one vocabulary to different sizes.

    own rows   t0 t1 ... t9 | pad pad             logits of ids that the host has not: left out
    host's     t0 t1 ... t9 | pad pad pad pad     logits of ids that the network has not: -inf, it never guesses them

An id without an embedding reads the last one: no text has it, and what is guessed behind it is only a guess.
"""

from dataclasses import replace

import torch
from torch import Tensor

from outdraft.models.networks.network import Network


class FittedNetwork:
    """A `Network` of `vocab_size` tokens over one of another number, whose layers are its own."""

    def __init__(self, network: Network, vocab_size: int) -> None:
        self.network = network
        self.own_size = network.config.vocab_size
        self.config = replace(network.config, vocab_size=vocab_size)
        self.exact, self.kernels = network.exact, network.kernels
        self.dtype, self.device = network.dtype, network.device
        self.num_parameters, self.pass_bytes = network.num_parameters, network.pass_bytes
        self.run, self.norm = network.run, network.norm

    @property
    def ids(self) -> Tensor:
        """Which token each row of the network's own head is [V']; -1: none."""
        own = torch.arange(self.own_size)
        return own.masked_fill(own >= self.config.vocab_size, -1)

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        return self.network.embed(ids.clamp(max=self.own_size - 1), positions)

    def logits(self, h: Tensor) -> Tensor:
        return self._fit(self.network.logits(h))

    def head(self, h: Tensor) -> Tensor:
        return self._fit(self.network.head(h))

    def _fit(self, own: Tensor) -> Tensor:
        """Logits [M, V'] -> [M, V]."""
        more = self.config.vocab_size - self.own_size
        return torch.nn.functional.pad(own, (0, more), value=-torch.inf)  # a negative number cuts


def unfitted(network: Network) -> Network:
    """The network itself."""
    return network.network if isinstance(network, FittedNetwork) else network
