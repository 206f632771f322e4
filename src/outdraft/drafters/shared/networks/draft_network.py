"""Any network that drafts, the target's own or another: all or some sublayers, then norm and head, over any rows.

On the native kernels a pass or a whole chain is one call; else through PyTorch. Data in: tokens, places and attention
context (the target's cache with tentative rows, or a drafter's own); data out: logits, chains.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.kernels.decoder.chains import Chains, Draw
from outdraft.models.networks.fitted import FittedNetwork, unfitted
from outdraft.models.networks.guess import NativeGuesser, guess_with
from outdraft.models.networks.native import NativeDecoder
from outdraft.models.networks.network import Network
from outdraft.models.networks.port import TargetPort
from outdraft.nn.context import AttentionContext

# In PyTorch: ids [N], places [N], context, skip -> states [N, D] after the layers; and norm and head: [M, D] -> [M, V]
Forward = Callable[[Tensor, Tensor, AttentionContext, Skip], Tensor]
Scorer = Callable[[Tensor], Tensor]


class DraftNetwork:
    """Layers and head that a guess goes through."""

    def __init__(
        self,
        forward: Forward,
        score: Scorer,
        native: NativeGuesser | None,
        device: torch.device,
        dtype: torch.dtype,
        *,
        last_id: int | None = None,
    ) -> None:
        """last_id: what ids above it are read as, which have no embeddings; None: all have."""
        self._forward, self._score, self._native = forward, score, native
        self._device = device
        self._last_id = last_id
        self.dtype = dtype

    @property
    def runs_chains(self) -> bool:
        """Whether `chain` is there."""
        return self._native is not None

    def logits(
        self, tokens: Seq[int], places: Seq[int], context: AttentionContext, wanted: Seq[int], skip: Skip = NO_SKIP
    ) -> Tensor:
        """One pass: logits [M, V] of the wanted rows."""
        return self.feed(tokens, places, context, wanted, skip)[1]

    def feed(
        self, tokens: Seq[int], places: Seq[int], context: AttentionContext, wanted: Seq[int], skip: Skip = NO_SKIP
    ) -> tuple[Tensor, Tensor]:
        """One pass: states [M, D], not normed, and logits [M, V] of the wanted rows."""
        if self._native is not None:
            return self._native.feed(self._known(tokens), places, context, wanted, skip=skip)
        ids = torch.tensor(tokens, device=self._device)
        hidden = self._forward(ids, torch.tensor(places, device=self._device), context, skip)
        hidden = hidden if len(wanted) == len(tokens) else hidden[list(wanted)]
        return hidden, self._score(hidden)

    def chain(
        self,
        tokens: Seq[int],
        places: Seq[int],
        context: AttentionContext,
        depths: Seq[int],
        draws: Seq[Draw | None],
        skip: Skip = NO_SKIP,
        cutoffs: Seq[tuple[float, float]] | None = None,
    ) -> Chains:
        """Whole chains in one call; the context's cache has room for a row a step behind those of the pass."""
        assert self._native is not None
        return self._native.chain(self._known(tokens), places, context, depths, draws, skip=skip, cutoffs=cutoffs)

    def _known(self, tokens: Seq[int]) -> Seq[int]:
        last = self._last_id
        return tokens if last is None else [min(token, last) for token in tokens]


def target_network(port: TargetPort) -> DraftNetwork:
    """The whole target as a network that drafts."""

    def forward(ids: Tensor, places: Tensor, context: AttentionContext, skip: Skip) -> Tensor:
        return port.layers.run(ids, places, context, skip=skip)

    native = guess_with(port.layers.native) if port.layers.native is not None else None
    return DraftNetwork(forward, port.layers.logits, native, port.facts.device, port.facts.dtype)


def loaded_network(network: Network) -> DraftNetwork:
    """A network that was loaded for drafting: a draft model, or the target's weights in another form."""

    def forward(ids: Tensor, places: Tensor, context: AttentionContext, skip: Skip) -> Tensor:
        return network.run(network.embed(ids, places), places, context, skip=skip).hidden

    ids, last_id = None, None
    if isinstance(network, FittedNetwork):
        ids, last_id = network.ids, network.own_size - 1
    own = unfitted(network)
    native = guess_with(own, ids=ids, num_ids=network.config.vocab_size) if isinstance(own, NativeDecoder) else None
    return DraftNetwork(forward, network.logits, native, network.device, network.dtype, last_id=last_id)
