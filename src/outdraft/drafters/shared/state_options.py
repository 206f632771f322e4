"""The options of every drafter with a network on the target's states."""

from dataclasses import dataclass, replace
from typing import Self

from outdraft.drafters.shared.choose import Sample
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.trees.tree import TreeShape
from outdraft.options.base import DraftShape, NetworkOptions
from outdraft.options.ranges import MOST_NODES, check_range

# Where a pass over 17 rows is not much dearer than one over a row: on a matrix unit, and through PyTorch, on a GPU
_ROWS_ARE_CHEAP = ("amx", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions(DrawOptions, NetworkOptions):
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    # the directory or hub name of the network, which belongs to one target; if none is given, what lies in MODEL/head
    model: str | None = None
    # how many children a node gets, and how many nodes are expanded on a level; 1 is a chain; 0 is a chain where the
    # kernels take time for each row of a pass (all without AMX), else 4. A tree whose tokens are drawn has equal levels
    # instead, down to its depth
    width: int = 0
    nodes: int = 16  # how many draft nodes of a tree are kept, the most probable ones; EAGLE-2 keeps 59 at width 10
    # "match" draws tokens as the request draws its own; "greedy" proposes the most probable ones; "auto" draws where
    # the rule accepts more of what is drawn
    sample: Sample = "auto"

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        NetworkOptions.__post_init__(self)
        check_range(self, "width", least=0, most=MOST_NODES)
        check_range(self, "nodes", least=1, most=MOST_NODES)

    def fitted(self, kernels: str | None) -> Self:
        """With a width for the target's kernels; None: PyTorch computes."""
        wide = 4 if kernels in _ROWS_ARE_CHEAP or self.keeps_form else 1
        return self if self.width else replace(self, width=wide)

    @property
    def is_chain(self) -> bool:
        return self.width == 1

    @property
    def drafts(self) -> DraftShape:
        """What a guess is, of options that are fitted."""
        return "chain" if self.is_chain else "tree"

    @property
    def keeps_form(self) -> bool:
        """Whether a tree of one form was asked for, whatever its rows cost."""
        return False

    @property
    def shape(self) -> TreeShape | None:
        """The fixed shape of its trees; None: the dynamic one."""
        return None
