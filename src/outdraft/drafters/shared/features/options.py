"""The options of every drafter at feature level."""

from dataclasses import dataclass

from outdraft.core.options import RoundedOptions
from outdraft.core.ranges import MOST_NODES, check_range
from outdraft.drafters.shared.choose import Sample
from outdraft.drafters.shared.draw_options import DrawOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOptions(DrawOptions, RoundedOptions):
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    model: str | None = None  # directory or hub name of the network, which belongs to one target; there is no default
    width: int = 4  # children of an expanded node, and nodes expanded on a level; 1: a chain
    nodes: int = 16  # draft nodes that remain of a tree; EAGLE-2's: width 10, 59 nodes
    sample: Sample = "greedy"  # the most probable tokens, or drawn as the request draws ("match")

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        RoundedOptions.__post_init__(self)
        check_range(self, "width", "nodes", least=1, most=MOST_NODES)
