"""Sequoia: a static tree, chosen for what is known of acceptance and cost, filled by a smaller model.

Chen et al., "Sequoia: scalable, robust, and hardware-aware speculative decoding", 2024,
https://arxiv.org/abs/2402.12374.

    rates p_k, cost t(m)  ->  best size and shape  ->  children of each node: the best, or drawn without replacement

Rates are given or counted while decoding; costs are given or measured once at start, on the target itself. How many
children a node gets never depends on what was drawn for them, so the sampled distribution is exact. Data in: sequences;
data out: trees.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from time import perf_counter
from typing import Any

from outdraft.core.draft import Draft, HostTree, host_tree
from outdraft.core.drafter import Seen
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.draw_options import SampleOptions
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.load_draft import ModelOptions
from outdraft.drafters.shared.networks.own_model import DraftModel, ModelDrafter, Text, describe_model, open_model
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.tree import Tree, TreeShape
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range
from outdraft.verify.shared.best_trees import BestTrees, Topology, choose_size

_FADE = 0.99  # a round's weight after the next one


class RankRates:
    """Rates that begin as `prior`, which weighs as much as a few rounds."""

    def __init__(self, prior: Seq[float], weight: float = 8.0) -> None:
        self._accepted = [rate * weight for rate in prior]
        self._examined = [weight] * len(prior)

    @property
    def rates(self) -> list[float]:
        return [accepted / examined for accepted, examined in zip(self._accepted, self._examined, strict=True)]

    def learn(self, tree: HostTree, path: Seq[int]) -> None:
        """A rule accepted `path` of `tree`."""
        ranks = range(len(self._accepted))
        for k in ranks:
            self._accepted[k] *= _FADE
            self._examined[k] *= _FADE
        for node, child in zip([0, *path], [*path, -1], strict=True):
            below = tree.children[node]
            for k in ranks[: len(below)]:
                self._examined[k] += 1
                self._accepted[k] += below[k] == child


_PRIOR = (0.65, 0.12, 0.06, 0.03, 0.02, 0.01, 0.01, 0.005)  # where counting begins
_REVIEW = 32  # rounds between two looks at the counted rates


@dataclass(frozen=True, slots=True, kw_only=True)
class SequoiaOptions(SampleOptions, ModelOptions):
    """Which model, how large a tree, what is known. Raises `ConfigError` naming what is out of range."""

    nodes: int = 32  # how many draft nodes the tree has at most
    depth: int = 8  # how many levels the tree has at most
    # how often the child of each rank is accepted, the best child first; when empty, this is counted while decoding
    acceptance: tuple[float, ...] = ()
    # the time of a target pass over 1, 2, ... nodes, in units of a pass over one; when empty, it is measured at the
    # start
    verify_cost: tuple[float, ...] = ()
    draft_cost: float = 0.1  # where `verify_cost` is given: the time of one level of the draft model, in the same unit

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        SampleOptions.__post_init__(self)
        check_range(self, "nodes", least=1, most=512)
        check_range(self, "depth", least=1, most=64)
        check_range(self, "draft_cost", least=0)
        for name in ("acceptance", "verify_cost"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if any(not 0 <= rate <= 1 for rate in self.acceptance) or sum(self.acceptance) > 1 + 1e-9:
            raise ConfigError(f"acceptance={self.acceptance}: rates between 0 and 1 whose sum is at most 1")
        if self.verify_cost and (len(self.verify_cost) < 2 or min(self.verify_cost) <= 0):
            raise ConfigError(f"verify_cost={self.verify_cost}: at least the costs of 1 and of 2 nodes, above 0")


class Static(TreeShape):
    """A topology, filled rank by rank."""

    def __init__(self, topology: Topology) -> None:
        self.widest = max(map(len, topology))
        self._topology = topology
        self._place = {0: 0}  # node of the tree -> of the topology
        self._ranks: dict[int, int] = {}  # node of the tree -> children so far

    def width(self, tree: Tree, node: int) -> int:
        """As many children as the topology has at this node's place."""
        return len(self._topology[self._place[node]])

    def expand(self, tree: Tree, new: range) -> list[int]:
        """Give each new node its place in the topology, and return those that have children there."""
        for node in new:
            parent = tree.parents[node]
            rank = self._ranks.get(parent, 0)
            self._ranks[parent] = rank + 1
            self._place[node] = self._topology[self._place[parent]][rank]
        return [node for node in new if self.width(tree, node) and not tree.is_unsure(node)]


class SequoiaDrafter(ModelDrafter):
    """One pass of the draft model a level; the shape is looked at again every few rounds."""

    def __init__(self, options: SequoiaOptions, model: DraftModel, pass_costs: Seq[float], draft_cost: float) -> None:
        super().__init__(model, forget=self.forget)
        self.draft_cost = draft_cost
        self.pass_costs = list(pass_costs)  # [m - 1]: of m nodes
        self._options = options
        self._guessed: set[int] = set()  # sequences whose coming round is of our own guess
        self.forget()

    @property
    def rates(self) -> list[float]:
        """Of the child of each rank: as given, or as counted so far."""
        return list(self._options.acceptance) or self._rates.rates

    def forget(self) -> None:
        """Count from the beginning."""
        self._rates = RankRates(self._options.acceptance or _PRIOR)
        self._rounds = 0
        self._trees = self._best_trees()

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        trees = []
        for seq, budget, cutoff in zip(seqs, budgets, cutoffs_of(budgets), strict=True):
            nodes = usable_nodes(seq, budget, self._options.nodes)
            depth = min(usable_depth(seq, budget), self._options.depth, self.model.room(seq.tokens))
            shape = Static(self.topology(nodes, depth, len(seqs))) if min(nodes, depth) > 0 else TreeShape()
            trees.append(Tree(seq, shape, max_depth=depth, max_nodes=nodes, cutoff=cutoff))
        drafts = grow_trees(trees, self.model.feed_trees, sample=self._options.sample)
        self._guessed |= {seq.id for seq, draft in zip(seqs, drafts, strict=True) if draft.num_nodes > 1}
        return drafts

    def topology(self, max_nodes: int, max_depth: int, batch: int = 1) -> Topology:
        """The shape with the least cost a token, of at most so many draft nodes and levels, `batch` texts a pass."""
        drafts = [inf, *(self.draft_cost * d for d in range(1, max_depth + 1))]
        passes = [inf, inf, *(self._cost(m * batch) for m in range(2, max_nodes + 2))]
        return self._trees.tree(*choose_size(self._trees, drafts, passes))

    def observe(self, seen: Seq[Seen]) -> None:
        """Count which ranks were accepted, of our own guesses: a drafter beside us may have made a round's."""
        own, self._guessed = self._guessed, set()
        if self._options.acceptance:
            return
        for one in seen:
            if one.seq.id in own and one.draft is not None and one.verdict is not None and one.draft.num_nodes > 1:
                self._rates.learn(host_tree(one.draft), one.verdict.path)
        self._rounds += 1
        if self._rounds % _REVIEW == 0:
            self._trees = self._best_trees()

    def _best_trees(self) -> BestTrees:
        options = self._options
        return BestTrees(self.rates, max_nodes=options.nodes + 1, max_depth=options.depth)

    def _cost(self, num_nodes: int) -> float:
        """Between two known sizes in a straight line; beyond the last as between the last two."""
        costs = self.pass_costs
        if num_nodes <= len(costs):
            return costs[num_nodes - 1]
        return costs[-1] + max(0.0, costs[-1] - costs[-2]) * (num_nodes - len(costs))


def build(options: SequoiaOptions, port: TargetPort) -> SequoiaDrafter:
    """Load the draft model, and measure what is not given."""
    model = open_model(options, port)
    if options.verify_cost:
        return SequoiaDrafter(options, model, options.verify_cost, options.draft_cost)
    return SequoiaDrafter(options, model, measure_passes(port, options.nodes + 1), _measure_draft(model))


def measure_passes(port: TargetPort, most: int) -> list[float]:
    """Seconds of a target pass over 1 .. `most` rows: measured at powers of two, in straight lines between them."""
    sizes = [*(1 << i for i in range(most.bit_length()) if 1 << i < most), most]
    known = [port.costs.pass_seconds(size) for size in sizes]
    costs = [known[0]]
    for (a, low), (b, high) in pairwise(zip(sizes, known, strict=True)):
        costs += [low + (high - low) * (m - a) / (b - a) for m in range(a + 1, b + 1)]
    return costs


def _measure_draft(model: DraftModel) -> float:
    """Seconds of a pass of the draft model over one row: the least of a few."""
    text, times = Text(-1, [0]), list[float]()
    model.add(text.id)
    for _ in range(6):
        began = perf_counter()
        model.read([text])
        times.append(perf_counter() - began)
    model.free(text.id)
    return min(times)


def describe(drafter: SequoiaDrafter) -> Mapping[str, Any]:
    """What the model's options came to, and the costs that the shape is chosen by."""
    costs = drafter.pass_costs
    return {
        **describe_model(drafter),
        "relative_draft_cost": drafter.draft_cost / costs[0],
        "relative_pass_cost": costs[-1] / costs[0],
    }


METHOD = DrafterMethod(
    name="sequoia",
    summary="a smaller model's tree, in the shape that is best for measured acceptance and measured cost",
    build=build,
    options=SequoiaOptions,
    paper=arxiv("2402.12374", "Sequoia: scalable, robust, and hardware-aware speculative decoding"),
    describe=describe,
    shape_of=lambda options: "tree",
)
