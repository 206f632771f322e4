"""A block network, and what it says of a block's slots.

    taps of the target at committed rows -- fc -- norm --> contexts c (once a row, the same for all layers)
    [anchor, mask, mask, ...] -- embedding --> layers over c and the block --> norm --> h -- head --> a token a slot

DFlash, Chen et al., 2026, https://arxiv.org/abs/2602.06036. What stands behind the head, and knows the tokens chosen
before a slot, is a `Correction`: a new head is one file. N rows, D channels, b slots of a block.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.blocks.config import BlockConfig
from outdraft.drafters.shared.blocks.correction import Correction
from outdraft.drafters.shared.blocks.layers import BlockAttention, BlockLayer
from outdraft.models.networks.block import embedding_rows, make_norm
from outdraft.nn.linear import Linear
from outdraft.nn.rope import Rope

Embed = Callable[[Tensor, Tensor], Tensor]  # ids [N], positions [N] -> [N, D]
Head = Callable[[Tensor], Tensor]  # normed states [N, D] -> logits [N, V]


class BlockNet(nn.Module):
    """The network. vocab [V']: the target's ids of the draft's tokens; None: all.

    own: the sizes of the parts that its kind adds. dtype: of the weights, and of what is drafted with them. `exact`: no
    row's bits depend on the rows beside it (inference).
    """

    def __init__(
        self,
        config: BlockConfig,
        dtype: torch.dtype,
        device: torch.device,
        vocab: Tensor | None = None,
        *,
        convolution: Callable[[], nn.Module] | None = None,
        correction: Correction | None = None,
        own: Any = None,
    ) -> None:
        super().__init__()
        layers, width = config.layers, config.layers.hidden_size
        self.config, self.own, self.exact, self.dtype = config, own, False, dtype
        self.vocab: Tensor | None
        self.register_buffer("vocab", vocab, persistent=False)
        self.fc = Linear(len(config.taps) * config.target_hidden_size, width, False, dtype, device)
        self.hidden_norm = make_norm(layers, width, dtype, device)
        told: dict[str, Any] = {"sinks": config.sinks, "value_scale": config.value_scale}
        self.layers = nn.ModuleList(
            BlockLayer(layers, i, dtype, device, convolution, **told) for i in range(layers.num_layers)
        )
        self.norm = make_norm(layers, width, dtype, device)
        self.lm_head = Linear(width, config.draft_vocab_size, False, dtype, device) if config.own_head else None
        self.embedding: nn.Parameter | None = None
        if config.own_embedding:
            size = (layers.vocab_size, width)
            self.embedding = nn.Parameter(torch.full(size, float("nan"), dtype=dtype, device=device))
        self.mask: nn.Parameter | None = None
        if config.own_mask or config.slot_masks:
            shape = (config.block_size - 1, width) if config.slot_masks else (width,)
            self.mask = nn.Parameter(torch.full(shape, float("nan"), dtype=dtype, device=device))
        self.correction = correction
        assert layers.rope is not None
        self.rope = Rope(layers.rope)

    def fuse(self, taps: Seq[Tensor]) -> Tensor:
        """The target's states, one [N, Dt] a tap -> contexts [N, D]."""
        found: Tensor = self.hidden_norm(self.fc(torch.cat([tap.to(self.dtype) for tap in taps], -1)))
        return found

    def keys(self, c: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Of each layer, keys and values [N, Hkv, d] of contexts [N, D] at these positions."""
        rotation = self.rope.at(positions, c.dtype)
        return [layer.keys(c, rotation) for layer in block_layers(self)]

    @property
    def can_shorten(self) -> bool:
        """Whether a block of fewer slots than it was trained with has the states of the whole block's first slots: no
        slot sees those behind it.
        """
        if self.correction is not None and self.correction.reads_all:
            return False
        causal = all(self.config.sight(layer)[1] for layer in range(len(self.layers)))
        return causal and all(layer.attention_conv is None for layer in block_layers(self))

    def embed(
        self, anchors: Tensor, positions: Tensor, table: Embed, *, shown: Tensor | None = None, size: int | None = None
    ) -> Tensor:
        """Anchors [n] at positions [n] -> the first rows of their blocks, block after block: [n * b, D].

        shown [n, b - 1]: tokens that stand in the slots behind the anchor's; -1: the mask does. None: it does in all.
        size: b; None: as it was trained. Of a smaller one the slots say something else unless it `can_shorten`.
        """
        size = size or self.config.block_size
        masked = anchors.new_full((len(anchors), size), -1) if shown is None else torch.nn.functional.pad(shown, (1, 0))
        masked[:, 0] = anchors
        hidden = anchors[:, None] if self.mask is not None else self.config.mask_token_id  # which may be no token
        ids = torch.where(masked < 0, hidden, masked)
        found = self._rows_of(ids.flatten(), self.places(positions, size), table)
        if self.mask is not None:
            masks = self.mask.expand(self.config.block_size - 1, -1)[: size - 1]
            rows = torch.nn.functional.pad(masks, (0, 0, 1, 0)).repeat(len(anchors), 1)
            found = torch.where(masked.flatten()[:, None] < 0, rows, found)
        return found if self.config.embedding_scale == 1 else found * self.config.embedding_scale

    def _rows_of(self, ids: Tensor, positions: Tensor, table: Embed) -> Tensor:
        """By the own table, or the target's: [n] -> [n, D]."""
        if self.embedding is not None:
            return embedding_rows(self.embedding, ids).to(self.dtype)
        return table(ids, positions).detach().to(self.dtype)

    def known(self, h: Tensor, scores: Tensor, context: Tensor, table: Embed) -> Tensor:
        """As the correction's, and states where it reads no scores; embeddings are the target's."""
        if self.correction is None or not self.correction.reads_scores:
            return h

        def embed(ids: Tensor) -> Tensor:
            found = table(ids.flatten(), torch.zeros_like(ids.flatten())).detach().to(self.dtype)
            return found.view(*ids.shape, found.shape[-1])

        return self.correction.known(h, scores, context, embed)

    def summaries(self, h: Tensor, before: Tensor, table: Embed) -> Tensor:
        """As the correction's; tokens stand at no position."""

        def embed(ids: Tensor) -> Tensor:
            found = self._rows_of(ids.flatten(), torch.zeros_like(ids.flatten()), table)
            return found.view(*ids.shape, found.shape[-1])

        assert self.correction is not None
        return self.correction.summaries(h, before, embed)

    def places(self, positions: Tensor, size: int) -> Tensor:
        """Positions [n] of anchors -> of all slots [n * b]."""
        return (positions[:, None] + torch.arange(size, device=positions.device)).flatten()

    def run(self, rows: Tensor, positions: Tensor, ctx: BlockAttention) -> Tensor:
        """Rows [n * b, D] of blocks whose anchors stand at positions [n] -> states [n * b, D], normed."""
        size = len(rows) // max(1, len(positions))
        rotation, h = self.rope.at(self.places(positions, size), rows.dtype), rows
        for layer in block_layers(self):
            h = layer(h, rotation, ctx, size, self.exact)
        normed: Tensor = self.norm(h)
        return normed

    def scores(self, h: Tensor, head: Head) -> Tensor:
        """States [n, D] -> logits [n, V'], by the own head or the target's."""
        if self.lm_head is not None:
            found: Tensor = self.lm_head(h)
        else:
            found = head(h)
        return self.adjusted(found)

    def adjusted(self, found: Tensor) -> Tensor:
        """What a head says, as the network's logits: [n, V or V'] -> [n, V']."""
        if self.lm_head is None and self.vocab is not None:
            found = found[:, self.vocab]
        if self.config.output_multiplier != 1:
            found = found * self.config.output_multiplier
        cap = self.config.logit_cap
        return found if cap is None else cap * torch.tanh(found / cap)


def block_layers(net: BlockNet) -> list[BlockLayer]:
    """Its layers, in order."""
    return [layer for layer in net.layers if isinstance(layer, BlockLayer)]
