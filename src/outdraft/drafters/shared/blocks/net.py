"""A block network, and what it says of a block's slots.

    taps of the target at committed rows -- fc -- norm --> contexts c (once a row, the same for all layers)
    [anchor, mask, mask, ...] -- embedding --> layers over c and the block --> norm --> h -- head --> a token a slot

DFlash, Chen et al., 2026, https://arxiv.org/abs/2602.06036. What stands behind the head, and knows the tokens chosen
before a slot, is a `Correction`: a new head is one file. N rows, D channels, b slots of a block.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from outdraft.drafters.shared.blocks.correction import Correction, unfilled
from outdraft.drafters.shared.blocks.layers import BlockAttention, BlockLayer
from outdraft.models.networks.block import embedding_rows, make_norm
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.port import TargetFacts
from outdraft.nn.linear import Linear
from outdraft.nn.rope import Rope
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.ranges import check_number

Embed = Callable[[Tensor, Tensor], Tensor]  # ids [N], positions [N] -> [N, D]
Head = Callable[[Tensor], Tensor]  # normed states [N, D] -> logits [N, V]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig:
    """What is computed; its layers are a Llama's or, with norms of queries and keys, a Qwen3's."""

    layers: ModelConfig
    taps: tuple[int, ...]  # the target's states after so many layers
    target_hidden_size: int
    block_size: int  # slots that it was trained with, the anchor's included
    mask_token_id: int
    runtime_block_size: int | None = None  # slots that are written when it drafts, the first ones; None: all
    from_anchor: bool = False  # the anchor's own slot guesses the next token too
    causal: bool = False  # a slot does not see the slots behind it
    causal_windows: bool = False  # in layers whose windows end (`layers.windows`) it does not
    draft_vocab_size: int
    own_head: bool = False
    own_embedding: bool = False
    own_mask: bool = False  # a row of its own stands for the mask, in place of the embedding of `mask_token_id`
    slot_masks: bool = False  # each slot behind the anchor's has a row of its own for the mask
    sinks: bool = False  # each head of each layer has a score that no key has (`nn/scores.py`)
    value_scale: float = 1.0  # of all values, before attention
    embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    logit_cap: float | None = None  # scores are cap * tanh(score / cap)

    def __post_init__(self) -> None:
        if self.block_size < 2:
            raise ConfigError(f"block_size={self.block_size}: a block has an anchor and at least one other slot")
        least, note = 1 + self.first_slot, "slots of a block of this network, the anchor's included"
        check_number("runtime_block_size", self.runtime_block_size, least=least, most=self.block_size, note=note)

    def sight(self, layer: int) -> tuple[int | None, bool]:
        """Of a layer: how many committed rows before its anchor a block sees (None: all), and whether slots see only
        those before them.
        """
        window = self.layers.window(layer)
        return window, self.causal or (self.causal_windows and window is not None)

    @property
    def norm_offset(self) -> float:
        """Files store norms as w that mean w + this."""
        return 1.0 if self.layers.norm == "rms32" else 0.0

    @property
    def first_slot(self) -> int:
        """The slot that guesses the token behind the anchor."""
        return 0 if self.from_anchor else 1

    @property
    def depth(self) -> int:
        """Tokens that a whole block guesses."""
        return self.block_size - self.first_slot

    @property
    def slots(self) -> int:
        """Of a block that drafts: whole, or the first ones of it."""
        return self.runtime_block_size or self.block_size

    @property
    def drafted(self) -> int:
        """Tokens that such a block guesses."""
        return self.slots - self.first_slot

    def require(self, facts: TargetFacts) -> None:
        """Raise `CapabilityError` for a target that this network was not made for."""
        for what, ours, theirs in (
            ("hidden size", self.target_hidden_size, facts.hidden_size),
            ("vocabulary", self.layers.vocab_size, facts.vocab_size),
        ):
            if ours != theirs:
                raise CapabilityError(
                    f"the block network is for a target with a {what} of {ours}, and this target has {theirs}: take "
                    "a draft of this target"
                )
        if self.mask_token_id >= facts.vocab_size and not (self.own_mask or self.slot_masks):
            raise CapabilityError(
                f"mask_token_id={self.mask_token_id} of the block network is none of the target's {facts.vocab_size} "
                "tokens, and its files hold no mask_embedding: download them again, or give that tensor in "
                "mask_embedding.safetensors"
            )
        if too_deep := [tap for tap in self.taps if not 0 <= tap <= facts.num_layers]:
            raise CapabilityError(
                f"the block network reads the target after layer {too_deep[0]}, and this target has {facts.num_layers}"
            )
        if not self.own_embedding and self.layers.hidden_size != facts.hidden_size:
            raise CapabilityError(
                f"the block network is {self.layers.hidden_size} wide and has no embeddings of its own, and the "
                f"target's are {facts.hidden_size} wide"
            )


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
            self.embedding = unfilled(layers.vocab_size, width, dtype=dtype, device=device)
        self.mask: nn.Parameter | None = None
        if config.own_mask or config.slot_masks:
            shape = (config.block_size - 1, width) if config.slot_masks else (width,)
            self.mask = unfilled(*shape, dtype=dtype, device=device)
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


def within(table: Embed, max_len: int) -> Embed:
    """The same table; slots behind the context, which nothing is asked of, stand at its last position."""
    return lambda ids, positions: table(ids, positions.clamp_max(max_len - 1))


def block_layers(net: BlockNet) -> list[BlockLayer]:
    """Its layers, in order."""
    return [layer for layer in net.layers if isinstance(layer, BlockLayer)]
