"""A network that drafts at feature level, as its drafter and its learner see it.

    taps of the target -- fuse --> f_i --+
    embedding of x_{i+1} ----------------+-- run --> g_i -- logits --> x_{i+2}
                                                      +-- carry --> stands in for f_{i+1}, where the target was not yet

Li et al., "EAGLE: speculative sampling requires rethinking feature uncertainty", 2024,
https://arxiv.org/abs/2401.15077.
N rows, D channels, everything flat; which row sees which is the attention context's affair.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.networks.rounding import rounded
from outdraft.kernels.decoder.entrance import Entrance
from outdraft.kernels.decoder.guesser import Guesser
from outdraft.kernels.decoder.stack import LayerParts, Stack
from outdraft.models.networks.block import embedding_rows
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.guess import NativeGuesser
from outdraft.models.networks.native import NativeDecoder, embedding_scale, norm_of, shape_of
from outdraft.models.networks.packable import weight_of
from outdraft.nn.context import AttentionContext
from outdraft.nn.linear import Linear, LinearMap
from outdraft.nn.quant.config import QuantConfig
from outdraft.nn.rope import Rope

Embed = Callable[[Tensor, Tensor], Tensor]  # ids [N], their positions [N] -> [N, D]


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeParts:
    """What a network is on the native kernels, whose norms at the entrance and before the head have the layers'
    `norm_eps`. The matrices are those of the network, which may have been rounded.

        taps -- norms -- fusion --> f --+-- [norms] -- [join] --> layers --> g -- [norm] -- head --> logits
        embedding of the next token ----+
    """

    layers: Seq[LayerParts]
    rope: Rope
    entrance: Entrance
    norm: nn.Module | None = None  # before the head; None: the outputs are normed already
    head: LinearMap | None = None  # None: the target's
    embedding: Tensor | None = None  # [V, D]; None: the target's


class FeatureNet(nn.Module):
    """A network that guesses the target's next features from features and tokens, whatever the method calls it.

    shape: of its decoder layers. taps: the target's states that it reads, tap t after t layers. vocab [V']: which of
    the target's tokens its logits are of, ascending; None: all of them, in order. `exact`: no row's bits depend on the
    rows beside it (inference).
    """

    def __init__(self, shape: ModelConfig, taps: tuple[int, ...], vocab: Tensor | None = None) -> None:
        super().__init__()
        self.exact, self.shape, self.taps = False, shape, taps
        self.vocab: Tensor | None
        self.register_buffer("vocab", vocab, persistent=False)
        self.embedding: nn.Parameter | None = None  # [V, D] its own; None: the target's

    def own_embedding(self, dtype: torch.dtype, device: torch.device, *, trains: bool) -> nn.Parameter:
        """Room for embeddings that its file brings."""
        size = (self.shape.vocab_size, self.shape.hidden_size)
        return nn.Parameter(torch.full(size, float("nan"), dtype=dtype, device=device), requires_grad=trains)

    @property
    def embed(self) -> Embed | None:
        """Its own token embeddings; None: the target's."""
        table = self.embedding
        return None if table is None else lambda ids, positions: embedding_rows(table, ids)

    def fuse(self, taps: Seq[Tensor]) -> Tensor:
        """The target's states, one [N, Dt] a tap -> features [N, D]."""
        raise NotImplementedError  # each subclass says it, like the three below

    def run(self, embeds: Tensor, f: Tensor, positions: Tensor, ctx: AttentionContext) -> Tensor:
        """Embeddings [N, D] of the next tokens and features [N, D] at `positions` [N] -> outputs [N, D]."""
        raise NotImplementedError

    def logits(self, g: Tensor) -> Tensor:
        """Outputs [N, D] -> [N, V], or [N, V'] of its own vocabulary."""
        raise NotImplementedError

    def native_parts(self, target: NativeDecoder) -> NativeParts:
        """The same network for the kernels, as its weights are now."""
        raise NotImplementedError

    def carry(self, g: Tensor) -> Tensor:
        """What stands in for the next feature: outputs [N, D] -> features [N, D]."""
        return g


def pack_network(net: FeatureNet, target: NativeDecoder, grid: QuantConfig | None = None) -> NativeGuesser:
    """The network on the kernels, in the target's instruction set and threads.

    grid: what its maps were rounded to; a head that it borrows of the target is rounded so too, as a copy.
    """
    parts, config = net.native_parts(target), net.shape
    head = parts.head
    if head is None and grid is not None:
        head = _rounded_head(target, grid)
    vocab = config.vocab_size if head is None else head.shape[0]
    shape = replace(shape_of(config), vocab=vocab)
    if parts.head is None:  # the target's, or a copy of it
        shape = replace(shape, logit_scale=target.config.logit_scale, logit_cap=target.config.logit_cap or 0.0)
    body = Stack(shape, len(parts.layers), threads=target.stack.threads, kind=target.kernels)
    for i, layer in enumerate(parts.layers):
        body.set_layer(i, layer)
    if head is not None:
        body.set_head(weight_of(head), None)
    ids = net.vocab
    if ids is not None and parts.head is None:  # the target's head scores all tokens, and these are guessed
        ids = torch.full((vocab,), -1).index_copy_(0, ids, ids)
    guesser = Guesser(
        body,
        target.stack if head is None else body,
        target.table if parts.embedding is None else parts.embedding.detach(),
        num_layers=len(parts.layers),
        embedding_scale=embedding_scale(target.config) if parts.embedding is None else 1.0,
        norm=None if parts.norm is None else norm_of(parts.norm),
        eps=config.norm_eps,
        bare_head=parts.norm is None,
        ids=ids,
        num_ids=target.config.vocab_size,
        entrance=parts.entrance,
    )
    _take_out_matrices(net)
    return NativeGuesser(guesser, parts.rope)


def _rounded_head(target: NativeDecoder, grid: QuantConfig) -> LinearMap | None:
    """A copy of the target's head; None where that has integers already."""
    weight = target.stack.read_head()
    if weight is None or not grid.covers("lm_head"):
        return None
    head = Linear(weight.shape[1], weight.shape[0], False, weight.dtype, weight.device)
    head.weight = nn.Parameter(weight, requires_grad=False)
    return rounded(head, grid, "lm_head")


@torch.no_grad()
def _take_out_matrices(net: nn.Module) -> None:
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, LinearMap):
                setattr(module, name, nn.Identity())
