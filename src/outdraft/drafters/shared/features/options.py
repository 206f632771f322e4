"""The options of every drafter at feature level."""

from dataclasses import dataclass

from outdraft.core.options import RoundedOptions
from outdraft.core.ranges import MOST_NODES, check_range
from outdraft.drafters.shared.choose import Sample
from outdraft.drafters.shared.draw_options import DrawOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureOptions(DrawOptions, RoundedOptions):
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    # the directory or hub name of the network, which belongs to one target; if none is given, what lies in MODEL/head
    model: str | None = None
    width: int = 4  # how many children a node gets, and how many nodes are expanded on a level; 1 is a chain
    nodes: int = 16  # how many draft nodes of a tree are kept, the most probable ones; EAGLE-2 keeps 59 at width 10
    # "greedy" proposes the most probable tokens; "match" draws them as the request draws its own
    sample: Sample = "greedy"

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        RoundedOptions.__post_init__(self)
        check_range(self, "width", "nodes", least=1, most=MOST_NODES)
