"""SpecExec: the largest tree that is worth a pass, best paths first, for targets whose passes are slow but take many
rows at little cost.

Svirschevski et al., "SpecExec: massively parallel speculative decoding for interactive LLM inference on consumer
devices", 2024, https://arxiv.org/abs/2406.02532.

    round   feed the `beams` best nodes that are not fed yet, each hangs up to `branch` children below itself
    end     when no unfed node could have a child among the best `nodes`; those are the tree

Scores are sums of log probabilities, and fall by -log(decay) a level. A child never scores more than its parent, so
feeding many nodes at a time finds the same tree as feeding the best one again and again. The tree is a function of the
text alone.
Data in: sequences; data out: deterministic trees.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from heapq import heappop, heappush, heappushpop
from math import log

from outdraft.core.draft import Draft
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.limits import MAX_NODES, Cutoff, cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.load_draft import ModelOptions
from outdraft.drafters.shared.networks.own_model import DraftModel, ModelDrafter, describe_model, open_model
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.tree import GREEDY, Tree, TreeShape
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecExecOptions(ModelOptions):
    """Which model, how large a tree. Raises `ConfigError` naming what is out of range."""

    nodes: int = 256  # how many nodes the tree has at most; the paper takes 16 to 4096
    beams: int = 32  # how many nodes are fed in one pass of the draft model
    branch: int = 16  # how many children a node may have
    decay: float = 0.95  # by what the score of a path is multiplied at every level, so that deep paths count less
    min_log_prob: float = -10.0  # a path whose log probability is less than this is not added
    # the temperature at which the paths of a greedy request are scored; a sampled request has its own
    temperature: float = GREEDY

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        check_range(self, "nodes", least=1, most=MAX_NODES)
        check_range(self, "beams", "branch", least=1, most=1024)
        if not 0 < self.decay <= 1:
            raise ConfigError(f"decay={self.decay}: must be above 0 and at most 1")
        if not self.min_log_prob < 0:
            raise ConfigError(f"min_log_prob={self.min_log_prob}: must be below 0")
        if not self.temperature > 0:
            raise ConfigError(f"temperature={self.temperature}: must be above 0")


class BestFirst(TreeShape):
    """The `nodes` best paths of one tree, found by feeding the best unfed nodes, `beams` at a time."""

    def __init__(self, *, nodes: int, beams: int, branch: int, decay: float = 1.0, min_log_prob: float) -> None:
        self.decay = log(decay)
        self.least = min_log_prob
        self.widest = branch
        self._nodes, self._beams = nodes, beams
        self._best: list[float] = []  # the scores of the best nodes so far, worst first
        self._unfed: list[tuple[float, int]] = []  # (-score, node), best first

    def width(self, tree: Tree, node: int) -> int:
        """The same everywhere; children out of reach are left out by `least`."""
        return self.widest

    def expand(self, tree: Tree, new: range) -> list[int]:
        """The best nodes that a child of theirs could still be among the best."""
        for node in new:
            score = tree.scores[node]
            if len(self._best) < self._nodes:
                heappush(self._best, score)
            else:
                heappushpop(self._best, score)
            if tree.depths[node] < tree.max_depth and not tree.is_unsure(node):
                heappush(self._unfed, (-score, node))
        if len(self._best) == self._nodes:
            self.least = max(self.least, self._best[0])
        chosen: list[int] = []
        while self._unfed and len(chosen) < self._beams and -self._unfed[0][0] + self.decay > self.least:
            chosen.append(heappop(self._unfed)[1])
        return sorted(chosen)


class SpecExecDrafter(ModelDrafter):
    """One pass of the draft model a round, over the nodes that all sequences want fed."""

    def __init__(self, options: SpecExecOptions, model: DraftModel) -> None:
        super().__init__(model)
        self._options = options

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        cutoffs = cutoffs_of(budgets)
        return grow_trees(
            [self._tree(seq, budget, cutoff) for seq, budget, cutoff in zip(seqs, budgets, cutoffs, strict=True)],
            self.model.feed_trees,
            sample="greedy",
        )

    def _tree(self, seq: Sequence, budget: Budget, cutoff: Cutoff) -> Tree:
        options = self._options
        nodes = usable_nodes(seq, budget, options.nodes)
        depth = min(usable_depth(seq, budget), self.model.room(seq.tokens))
        shape = BestFirst(
            nodes=nodes,
            beams=options.beams,
            branch=options.branch,
            decay=options.decay,
            min_log_prob=options.min_log_prob,
        )
        return Tree(seq, shape, max_depth=depth, max_nodes=nodes, cutoff=cutoff, temperature=options.temperature)


METHOD: DrafterMethod[SpecExecOptions, TargetPort, SpecExecDrafter] = DrafterMethod(
    name="specexec",
    summary="the best paths of a smaller model, hundreds of nodes, for targets that are slow to read",
    build=lambda options, port: SpecExecDrafter(options, open_model(options, port)),
    options=SpecExecOptions,
    paper=arxiv(
        "2406.02532",
        "SpecExec: massively parallel speculative decoding for interactive LLM inference on consumer devices",
    ),
    describe=describe_model,
    shape_of=lambda options: "tree",
)
