"""The options of every drafter with a network on the target's states."""

from dataclasses import dataclass

from outdraft.drafters.shared.choose import Sample
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.trees.tree import TreeShape
from outdraft.options.base import RoundedOptions
from outdraft.options.ranges import MOST_NODES, check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions(DrawOptions, RoundedOptions):
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    # the directory or hub name of the network, which belongs to one target; if none is given, what lies in MODEL/head
    model: str | None = None
    # how many children a node gets, and how many nodes are expanded on a level; 1 is a chain. A tree whose tokens are
    # drawn has equal levels instead, down to its depth
    width: int = 4
    nodes: int = 16  # how many draft nodes of a tree are kept, the most probable ones; EAGLE-2 keeps 59 at width 10
    # "match" draws tokens as the request draws its own; "greedy" proposes the most probable ones; "auto" draws where
    # the rule accepts more of what is drawn
    sample: Sample = "auto"

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        RoundedOptions.__post_init__(self)
        check_range(self, "width", "nodes", least=1, most=MOST_NODES)

    @property
    def shape(self) -> TreeShape | None:
        """The fixed shape of its trees; None: the dynamic one."""
        return None
