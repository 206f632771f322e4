"""What every kind of head on the last layer has: its sizes, its options, and a target that it belongs to."""

from dataclasses import dataclass, replace
from typing import Self

from outdraft.drafters.shared.state_options import StateOptions
from outdraft.models.networks.port import TargetFacts
from outdraft.options.errors import CapabilityError


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig:
    """How many heads, and the sizes of their target."""

    tap: int  # the target's number of layers: they read what comes after the last
    hidden_size: int
    vocab_size: int
    num_heads: int  # tokens that are guessed
    draft_vocab_size: int = 0  # of the target's tokens those that can be; 0: all
    own_projections: bool = True  # False: the target's head stands in for all of them
    scale: float = 1.0  # of the states: an inflated target with a tied head has narrower ones

    def require(self, known: TargetFacts, *, whose: str) -> None:
        """Raise `CapabilityError` unless the target has these sizes. `whose`: the heads, in words."""
        theirs = (known.num_layers, known.hidden_size, known.vocab_size)
        if (self.tap, self.hidden_size, self.vocab_size) != theirs:
            raise CapabilityError(
                f"{whose} of a target of {self.tap} layers, width {self.hidden_size} and vocabulary {self.vocab_size} "
                f"cannot draft for one of {theirs[0]}, {theirs[1]} and {theirs[2]}: they belong to their own target"
            )

    def wider(self, width: int, depth: int, scale: float) -> Self:
        """The sizes for a target of `width` times the channels and `depth` layers, whose states are scaled."""
        return replace(self, tap=depth, hidden_size=self.hidden_size * width, scale=scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class StemConfig(HeadConfig):
    """Heads that may have layers below them; `num_stem_layers` 0: they have none, and the sizes say nothing."""

    num_stem_layers: int = 0
    stem_heads: int = 0
    stem_kv_heads: int = 0
    stem_head_dim: int = 0
    stem_inner: int = 0  # width of the feed-forward part
    stem_rope_theta: float = 10000.0
    stem_norm_eps: float = 1e-5
    stem_norm: bool = False  # behind the last layer, as published prefix layers have it

    def wider(self, width: int, depth: int, scale: float) -> Self:
        """The layers below grow too."""
        return replace(
            HeadConfig.wider(self, width, depth, scale),
            stem_heads=self.stem_heads * width,
            stem_kv_heads=self.stem_kv_heads * width,
            stem_inner=self.stem_inner * width,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions(StateOptions):
    """Which heads, which shape. Raises `ConfigError` naming what is out of range."""

    nodes: int = 16  # how many draft nodes of a tree are kept, the most probable ones; the papers keep 63
    # a file that `outdraft train tree` wrote: a tree of fixed form, used in place of `width` and `nodes`
    tree: str | None = None

    @property
    def is_chain(self) -> bool:
        return self.width == 1 and self.tree is None
