"""What every kind of head on the last layer has: its sizes, its options, and a target that it belongs to."""

from dataclasses import dataclass
from typing import Literal

from outdraft.drafters.shared.choose import Sample
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.options.base import RoundedOptions
from outdraft.options.errors import CapabilityError
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadConfig:
    """How many heads, and the sizes of their target."""

    tap: int  # the target's number of layers: they read what comes after the last
    hidden_size: int
    vocab_size: int
    num_heads: int  # tokens that are guessed
    own_projections: bool = True  # False: the target's head stands in for all of them
    scale: float = 1.0  # of the states: an inflated target with a tied head has narrower ones

    def require(self, num_layers: int, hidden_size: int, vocab_size: int, *, whose: str) -> None:
        """Raise `CapabilityError` unless the target has these sizes. `whose`: the heads, in words."""
        if (self.tap, self.hidden_size, self.vocab_size) != (num_layers, hidden_size, vocab_size):
            raise CapabilityError(
                f"{whose} of a target of {self.tap} layers, width {self.hidden_size} and vocabulary {self.vocab_size} "
                f"cannot draft for one of {num_layers}, {hidden_size} and {vocab_size}: they belong to their own target"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOptions(DrawOptions, RoundedOptions):
    """Which heads, which shape. Raises `ConfigError` naming what is out of range."""

    # the directory or hub name of the heads, which belong to one target; if none is given, what lies in MODEL/head
    model: str | None = None
    # how many children a node gets, and how many nodes are expanded on a level; 1 is a chain. A tree whose tokens are
    # drawn has equal levels instead, down to its depth
    width: int = 4
    nodes: int = 16  # how many draft nodes of a tree are kept, the most probable ones; the papers keep 63
    # a file that `outdraft train tree` wrote: a tree of fixed form, used in place of `width` and `nodes`
    tree: str | None = None
    # "match" draws tokens as the request draws its own; "greedy" proposes the most probable ones; "auto" draws where
    # the rule accepts more of what is drawn
    sample: Sample = "auto"

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        RoundedOptions.__post_init__(self)
        check_range(self, "width", "nodes", least=1, most=MOST_NODES)


def head_shape(options: HeadOptions) -> Literal["chain", "tree"]:
    """What is proposed with these options."""
    return "chain" if options.width == 1 and options.tree is None else "tree"
