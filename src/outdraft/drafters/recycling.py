"""Token recycling: one matrix of successors, filled by every pass, read through a static tree.

Luo et al., "Turning trash into treasure: accelerating inference of large language models with token recycling", 2024,
https://arxiv.org/abs/2408.08696.

    matrix  [V, k]      row t = the best k tokens after t when the target last saw t; -1: never
    guess   the template, top down: node with rank r below token t gets matrix[t, r]; unseen subtrees are left out
    learn   every node's row of logits, accepted or not, in the order of depth: the last one wins

A path of the template promises the product of its ranks' shares; each level has a given number of nodes, the most
promising ones below the level above. Data in: raw logits at all nodes; data out: a deterministic tree. The matrix
outlives requests: that is the point. Each salt has its own.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen, Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.limits import usable_depth, usable_nodes
from outdraft.drafters.shared.per_salt import PerSalt
from outdraft.drafters.shared.plain import OneByOne
from outdraft.kernels.decoder.top import top_ids
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import MOST_NODES, check_range
from outdraft.options.shown import shown

Ints = NDArray[np.int64]


def share(rank: int) -> float:
    """How often the successor of this rank is the accepted one: about what the zoo's target showed, held-out texts.

    Measured: 0.81 0.087 0.039 0.018 0.021 0.013 0.008 0.007 of 1907 accepted nodes.
    """
    return 0.8 if rank == 0 else 0.1 * float(rank**-1.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTemplate:
    """N nodes, node 0 the pending token; level by level, so a parent precedes its children."""

    parents: Ints  # [N], -1 for node 0
    ranks: Ints  # [N] among the parent's successors, 0 the best; 0 for node 0
    places: Ints  # [N] by promise: node 0 has place 0, the most promising other node place 1; a parent before its child
    ends: tuple[int, ...]  # [levels + 1] nodes above the end of level i, node 0 being level 0


def template(levels: Seq[int], width: int) -> RankTemplate:
    """`levels[i]` nodes at depth i + 1, of ranks below `width`; fewer where so many cannot hang from those above."""
    parents, ranks, promise, ends = [-1], [0], [2.0], [1]
    above = [0]
    for size in levels:
        below = [(promise[node] * share(rank), -node, -rank) for node in above for rank in range(width)]
        chosen = sorted(sorted(below, reverse=True)[:size], key=lambda one: (-one[1], -one[2]))
        above = list(range(len(parents), len(parents) + len(chosen)))
        parents += [-one[1] for one in chosen]
        ranks += [-one[2] for one in chosen]
        promise += [one[0] for one in chosen]
        ends.append(len(parents))
    places = np.empty(len(parents), np.int64)
    places[np.argsort(-np.array(promise), kind="stable")] = np.arange(len(parents))
    return RankTemplate(parents=np.array(parents), ranks=np.array(ranks), places=places, ends=tuple(ends))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecyclingOptions:
    """The matrix and the tree. Raises `ConfigError` naming what is out of range."""

    width: int = 8  # how many successors are kept for each token of the vocabulary
    # how many nodes the tree has at depth 1, 2, and so on; the paper's tree has 80 in all
    levels: tuple[int, ...] = (8, 21, 25, 15, 8, 3)

    def __post_init__(self) -> None:
        check_range(self, "width", least=1, most=256, note="of every token of the vocabulary")
        object.__setattr__(self, "levels", tuple(self.levels))
        check_range(self, "levels", least=1, most=MOST_NODES)
        if not 0 < sum(self.levels) <= MOST_NODES:
            raise ConfigError(
                f"levels={shown(self.levels)}: one number of nodes for each depth, in all 1 to {MOST_NODES}"
            )


class RecyclingDrafter(OneByOne):
    """One matrix for all requests of a salt; nothing is kept of a single one."""

    def __init__(self, options: RecyclingOptions, vocab_size: int) -> None:
        self._width = min(options.width, vocab_size)
        self._tree = template(options.levels, self._width)
        # One row more than tokens, which stays -1: the successors of "never seen", whose index is -1.
        self._matrices = PerSalt(lambda: np.full((vocab_size + 1, self._width), -1, np.int64))
        self.traits = Traits(peeks=True, forget=self._matrices.forget)

    def observe(self, seen: Seq[Seen]) -> None:
        """Write the best successors of every node's token."""
        for one in seen:
            if one.draft is not None and one.logits is not None:
                # Equal tokens: numpy keeps the last row, so the deepest node's.
                matrix = self._matrices.of(one.seq)
                matrix[one.draft.tokens.cpu().numpy()] = top_ids(one.logits, self._width).numpy()

    def guess(self, seq: Sequence, budget: Budget) -> Draft:
        """The template, filled as far as its tokens were seen."""
        tree, matrix = self._tree, self._matrices.of(seq)
        depth = min(usable_depth(seq, budget), len(tree.ends) - 1)
        max_nodes = usable_nodes(seq, budget, len(tree.parents) - 1)
        if depth == 0:
            return chain([seq.pending])
        tokens = np.full(tree.ends[depth], seq.pending)
        for start, stop in zip(tree.ends, tree.ends[1 : depth + 1], strict=False):
            tokens[start:stop] = matrix[tokens[tree.parents[start:stop]], tree.ranks[start:stop]]
        kept = np.flatnonzero(tokens >= 0)
        if len(kept) > max_nodes + 1:
            kept = np.sort(kept[np.argsort(tree.places[kept])[: max_nodes + 1]])
        at = np.empty(len(tokens), np.int64)
        at[kept] = np.arange(len(kept))
        parents = at[tree.parents[kept]]
        parents[0] = -1
        return Draft(tokens=torch.from_numpy(tokens[kept]), parents=torch.from_numpy(parents))


METHOD: DrafterMethod[RecyclingOptions, TargetPort, RecyclingDrafter] = DrafterMethod(
    name="recycling",
    summary="a tree from each token's last seen best successors, kept across requests (no model)",
    build=lambda options, port: RecyclingDrafter(options, port.facts.vocab_size),
    options=RecyclingOptions,
    paper=arxiv(
        "2408.08696",
        "Turning trash into treasure: accelerating inference of large language models with token recycling",
    ),
    shape_of=lambda options: "tree",
)
