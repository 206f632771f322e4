"""The sizes of a block network, whatever stands behind it."""

from dataclasses import dataclass

from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.port import TargetFacts
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.ranges import check_number


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
