"""Chains and trees over the slots of blocks, each of which was computed before any token of its guess is chosen.

Data in: sequences, depths, and what a slot says behind a path; data out: drafts.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.choose import takes_argmax
from outdraft.drafters.shared.limits import cutoffs_of
from outdraft.drafters.shared.state_drafter import new_trees
from outdraft.drafters.shared.state_options import StateOptions
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import BestPaths
from outdraft.drafters.shared.trees.tree import Tree

# step, sequences, paths of `step` tokens behind their pending ones -> logits [n, V] of the next token
Say = Callable[[int, Seq[Sequence], Seq[Seq[int]]], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions(StateOptions):
    """Which network, which tree. Raises `ConfigError` naming what is out of range."""

    # whether a tree that is not drawn keeps the best paths, whatever their level (DDTree); False: EAGLE-2's levels of
    # `width` nodes. A drawn tree has equal levels
    best_first: bool = True


def grow_slots(
    options: BlockOptions,
    seqs: Seq[Sequence],
    depths: Seq[int],
    budgets: Seq[Budget],
    say: Say,
    chances: Callable[[], Tensor] | None = None,
) -> list[Draft]:
    """A draft of at most `depths[i]` tokens in depth for `seqs[i]`.

    chances: of the slots [n] that `say` was asked about last, how likely they are accepted; chains end by them.
    """
    cutoffs = cutoffs_of(budgets, options.confidence_threshold)
    if options.width == 1:
        paths: list[list[int]] = [[] for _ in seqs]

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            if step:
                for row, token in zip(rows, tokens, strict=True):
                    paths[row].append(token)
            return say(step, [seqs[i] for i in rows[:num_open]], [paths[i] for i in rows[:num_open]])

        return grow_chains(seqs, depths, ChainNetwork(feed=feed, chances=chances), cutoffs, sample=options.sample)

    def feed_trees(level: int, trees: list[Tree]) -> Tensor:
        nodes = [(tree.seq, tree.path(node)) for tree in trees for node in tree.frontier]
        return say(level, [seq for seq, _ in nodes], [path for _, path in nodes])

    trees = new_trees(options, seqs, depths, budgets, cutoffs, shape=None, nodes=options.nodes)
    for tree in trees:
        if options.best_first and takes_argmax(tree.seq, options.sample):
            tree.shape = BestPaths(max(1, tree.max_nodes))
    return grow_trees(trees, feed_trees, sample=options.sample)
