"""Chains and trees over the slots of blocks, each of which was computed before any token of its guess is chosen.

Data in: sequences, depths, and what a slot says behind a path; data out: drafts.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
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
from outdraft.drafters.shared.trees.growth import Alike, FeedTrees, grow_trees
from outdraft.drafters.shared.trees.shapes import BestPaths, Template
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
    options: StateOptions,
    seqs: Seq[Sequence],
    depths: Seq[int],
    budgets: Seq[Budget],
    say: Say,
    template: Seq[tuple[int, ...]] | None = None,
    chances: Callable[[], Tensor] | None = None,
) -> list[Draft]:
    """A draft at most `depths[i]` tokens deep for `seqs[i]`, of slots that depend on the tokens before them.

    `template`: the paths of a tree of fixed form. `chances`: of the slots [n] that `say` was asked about last, how
    likely they are accepted; chains end by them.
    """
    if options.is_chain:
        paths: list[list[int]] = [[] for _ in seqs]

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            if step:
                for row, token in zip(rows, tokens, strict=True):
                    paths[row].append(token)
            return say(step, [seqs[i] for i in rows[:num_open]], [paths[i] for i in rows[:num_open]])

        return _chains(options, seqs, depths, budgets, ChainNetwork(feed=feed, chances=chances))

    def feed_trees(level: int, trees: list[Tree]) -> Tensor:
        nodes = [(tree.seq, tree.path(node)) for tree in trees for node in tree.frontier]
        return say(level, [seq for seq, _ in nodes], [path for _, path in nodes])

    return _trees(options, seqs, depths, budgets, feed_trees, template)


def grow_marginals(
    options: BlockOptions, seqs: Seq[Sequence], depths: Seq[int], budgets: Seq[Budget], said: Mapping[int, Tensor]
) -> list[Draft]:
    """The same of slots that say the same behind any path: `said[seq.id]` [depths[i], V], of all slots at once."""
    if options.is_chain:

        def block(rows: list[int], own: list[int]) -> Tensor:
            deepest = max(own)
            found = [said[seqs[i].id] for i in rows]
            return torch.stack([torch.nn.functional.pad(one, (0, 0, 0, deepest - len(one))) for one in found])

        return _chains(options, seqs, depths, budgets, ChainNetwork(block=block))

    def feed_trees(level: int, trees: list[Tree]) -> Alike:
        owners = [i for i, tree in enumerate(trees) for _ in tree.frontier]
        return Alike(rows=torch.stack([said[tree.seq.id][level] for tree in trees]), owners=owners)

    return _trees(options, seqs, depths, budgets, feed_trees)


def _chains(
    options: StateOptions, seqs: Seq[Sequence], depths: Seq[int], budgets: Seq[Budget], network: ChainNetwork
) -> list[Draft]:
    cutoffs = cutoffs_of(budgets, options.confidence_threshold)
    return grow_chains(seqs, depths, network, cutoffs, sample=options.sample)


def _trees(
    options: StateOptions,
    seqs: Seq[Sequence],
    depths: Seq[int],
    budgets: Seq[Budget],
    feed: FeedTrees,
    template: Seq[tuple[int, ...]] | None = None,
) -> list[Draft]:
    shape, nodes = (None, options.nodes) if template is None else (Template(template), len(template))
    trees = new_trees(options, seqs, depths, budgets, shape, nodes)
    best_first = isinstance(options, BlockOptions) and options.best_first
    for tree in trees:
        if best_first and takes_argmax(tree.seq, options.sample):
            tree.shape = BestPaths(max(1, tree.max_nodes))
    return grow_trees(trees, feed, sample=options.sample)
