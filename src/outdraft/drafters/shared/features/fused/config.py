"""What an EAGLE-3 network is, whatever library wrote it: sizes, taps and flags, resolved once.

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840. EAGLE-3.1 is `fc_norm` with `norm_output`.
"""

from dataclasses import dataclass

from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.port import TargetFacts
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedConfig:
    """Sizes, taps and flags. Tap t: the target's state after t layers."""

    layers: ModelConfig  # its own decoder layers; their vocabulary is the target's
    taps: tuple[int, ...]
    draft_vocab_size: int
    target_hidden_size: int
    norm_before_residual: bool = False  # the first layer's residual is the normed feature
    norm_before_fc: bool = False  # one norm over all taps side by side
    fc_norm: bool = False  # a norm for each tap
    norm_output: bool = False  # what is carried to the next step is normed
    one_state: bool = False  # the feature is the target's last state behind its final norm, as in EAGLE-1: no `fc`
    own_head: bool = True  # False: the target's head scores what `norm` gives
    own_embedding: bool = False
    train_embedding: bool = False  # `embed_requires_grad`
    mask_token_id: int | None = None  # stands for a token that is not there yet, and `mask_hidden` for its states
    num_depths: int = 1  # tokens that one pass guesses, all but the first by rows of masks

    def require(self, known: TargetFacts) -> None:
        """Raise `CapabilityError` unless it can draft for this target."""
        if (self.target_hidden_size, self.layers.vocab_size) != (known.hidden_size, known.vocab_size):
            raise CapabilityError(
                f"an EAGLE-3 network for width {self.target_hidden_size} and vocabulary {self.layers.vocab_size} "
                f"cannot draft for a target of {known.hidden_size} and {known.vocab_size}: it belongs to its own target"
            )
        if max(self.taps) > known.num_layers or min(self.taps) < 0:
            raise CapabilityError(
                f"an EAGLE-3 network that reads the states after {self.taps} layers cannot draft for a target of "
                f"{known.num_layers} layers: it belongs to another one"
            )
        if (self.one_state or not self.own_head) and self.layers.hidden_size != known.hidden_size:
            lacking = "fc.weight" if self.one_state else "lm_head.weight"
            raise CapabilityError(
                f"an EAGLE-3 network of width {self.layers.hidden_size} without {lacking} reads the target's own, "
                f"which has width {known.hidden_size}: it belongs to another one"
            )
        if not self.own_embedding and self.layers.hidden_size != known.hidden_size:
            raise CapabilityError(
                f"an EAGLE-3 network of width {self.layers.hidden_size} without embeddings of its own cannot read "
                f"those of a target of width {known.hidden_size}: its file must bring embed_tokens.weight"
            )
