r"""How a tree grows: how many children a node gets, and which nodes are expanded next.

    Beam      the same width everywhere; on each level the most probable paths are expanded
    BestPaths the most probable paths of all, whatever their level (DDTree)
    Levels    so many children on each level, all of them expanded (SpecInfer's expansion)
    Joint     so many nodes on each level, drawn together (RSD-S); of a deterministic tree as Beam
    Template  the same nodes always, named by their ranks (Medusa's and EAGLE's)

Miao et al., "SpecInfer: accelerating large language model serving with tree-based speculative inference and
verification", 2023, https://arxiv.org/abs/2305.09781; Jeon et al., "Recursive speculative decoding", 2024,
https://arxiv.org/abs/2402.14160. A shape may look at scores: those of sampled tokens decide what hangs below them,
never whether they stay. Data in: a tree that grew by a level; data out: nodes.
"""

from collections.abc import Sequence as Seq

from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import Sample, takes_argmax
from outdraft.drafters.shared.trees.tree import Tree, TreeShape


class Beam(TreeShape):
    """`width` children of an expanded node, `beam` nodes expanded on a level: the most probable paths."""

    def __init__(self, width: int, beam: int) -> None:
        self.widest = width
        self._beam = beam

    def width(self, tree: Tree, node: int) -> int:
        return self.widest

    def expand(self, tree: Tree, new: range) -> list[int]:
        sure = [node for node in new if not tree.is_unsure(node)]
        return sorted(sorted(sure, key=lambda node: (-tree.scores[node], node))[: self._beam])


class BestPaths(Beam):
    """The best `nodes` paths that there are: a node is expanded while it is one of them.

    DDTree over a block's slots (2026), and over whatever else says how likely a token is behind a path.
    """

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes, nodes)

    def expand(self, tree: Tree, new: range) -> list[int]:
        """Those that may be among the best in the end; what comes later scores less than what it hangs below."""
        best = sorted(range(1, len(tree.tokens)), key=lambda node: (-tree.scores[node], node))[: self._beam]
        if len(best) == self._beam:
            self.least = tree.scores[best[-1]]
        return [node for node in sorted(best) if node in new and not tree.is_unsure(node)]


class JointBeam(Beam):
    """`size` nodes on every level: `stochastic_beam`."""

    def __init__(self, size: int) -> None:
        super().__init__(size, size)
        self.together = size


def dynamic(seq: Sequence, sample: Sample, *, width: int, depth: int, nodes: int) -> Beam:
    """A tree that follows the most probable paths, of at most `nodes` nodes; a drawn one has equal levels, and as many
    nodes in all.

    What is drawn cannot be pruned: with `width` children of every node a drawn tree would be full after two levels.
    """
    if takes_argmax(seq, sample):
        return Beam(width, width)
    levels = max(1, depth)
    whole = min(nodes, width + (levels - 1) * width * width)
    return JointBeam(max(1, -(-whole // levels)))


class Levels(TreeShape):
    """`counts[d]` children of every node at depth d."""

    def __init__(self, counts: Seq[int]) -> None:
        self.widest = max(counts)
        self._counts = counts

    def width(self, tree: Tree, node: int) -> int:
        return self._counts[tree.depths[node]]

    def expand(self, tree: Tree, new: range) -> list[int]:
        return [node for node in new if tree.depths[node] < len(self._counts) and not tree.is_unsure(node)]


def num_nodes(counts: Seq[int]) -> int:
    """Nodes below the root of a complete `Levels` tree."""
    total, level = 0, 1
    for count in counts:
        level *= count
        total += level
    return total


class Template(TreeShape):
    """A tree fixed beforehand: `paths` are those of its nodes, each a rank among its siblings a level, from 0."""

    def __init__(self, paths: Seq[tuple[int, ...]]) -> None:
        self._widths: dict[tuple[int, ...], int] = {}  # of a node's path: how many children
        for path in paths:
            self._widths[path[:-1]] = max(self._widths.get(path[:-1], 0), path[-1] + 1)
        self.widest = max(self._widths.values())

    def width(self, tree: Tree, node: int) -> int:
        return self._widths.get(ranks(tree, node), 0)

    def expand(self, tree: Tree, new: range) -> list[int]:
        return [node for node in new if self.width(tree, node) and not tree.is_unsure(node)]


def ranks(tree: Tree, node: int) -> tuple[int, ...]:
    """Which child of its parent a node is, level by level from the root: siblings stand side by side."""
    found: list[int] = []
    while node > 0:
        parent = tree.parents[node]
        first = node
        while tree.parents[first - 1] == parent:
            first -= 1
        found.append(node - first)
        node = parent
    return tuple(found[::-1])
