"""EAGLE-1's static tree, and the options of drafters that have it: 25 nodes, five levels, wide where guesses are good.

Li et al., "EAGLE", 2024, https://arxiv.org/abs/2401.15077: the nodes are those of its published code. A node is the
ranks of its path: 10 is the first child of the second child of the pending token. The first is the likeliest, or, where
siblings are drawn, the one that was drawn first.
"""

from dataclasses import dataclass
from typing import Literal

from outdraft.drafters.shared.state_options import StateOptions
from outdraft.drafters.shared.trees.shapes import Template
from outdraft.drafters.shared.trees.tree import TreeShape
from outdraft.options.errors import ConfigError

_NODES = "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"
STATIC: tuple[tuple[int, ...], ...] = tuple(tuple(map(int, node)) for node in _NODES.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOptions(StateOptions):
    """Which network, which tree. Raises `ConfigError` naming what is out of range."""

    # "static" has the same form in every round; "dynamic" follows the most probable paths, as EAGLE-2 does; "auto" is
    # the static one, or a chain where the kernels take time for each row of a pass; width 1 is a chain
    tree: Literal["auto", "static", "dynamic"] = "auto"
    nodes: int = 25  # how many draft nodes of a tree are kept

    def __post_init__(self) -> None:
        StateOptions.__post_init__(self)
        if self.tree not in ("auto", "static", "dynamic"):
            raise ConfigError(
                f"tree={self.tree!r}: it is 'static' (always the same), 'dynamic' (the likeliest paths) or 'auto'"
            )

    @property
    def keeps_form(self) -> bool:
        return self.tree == "static"

    @property
    def shape(self) -> TreeShape | None:
        return None if self.tree == "dynamic" else Template(STATIC)
