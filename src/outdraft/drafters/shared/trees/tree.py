"""A draft tree while it grows, and the shape that says how.

    tokens  [p, a, b, c]   parents [-1, 0, 0, 1]   scores: log probability of each path   frontier: whom to feed next

Data: one sequence's nodes on the host, in the order they were made; parents come first.
"""

from math import inf

from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.limits import Cutoff

# A greedy target follows the best path however flat the distribution is: its paths are scored at this temperature.
GREEDY = 0.5


class TreeShape:
    """A single node, as every shape begins. One for each tree, since it may remember what it saw."""

    widest = 0  # the most children that any node is wanted to have
    together = 0  # nodes of a sampled level drawn as one stochastic beam; 0: each node's children by themselves
    decay = 0.0  # added to a path's log probability at every level: how far the guesser is to be trusted
    least = -inf  # children of a deterministic tree that score less are not even added

    def width(self, tree: "Tree", node: int) -> int:
        """Children wanted of a node that is expanded."""
        return 0

    def expand(self, tree: "Tree", new: range) -> list[int]:
        """Which nodes to expand next, ascending; `new` ones came in this round. Those too deep are left out."""
        return []


class Tree:
    """One sequence's tree while it grows."""

    __slots__ = tuple(
        "cutoff depths distributions expanded frontier max_depth max_nodes parents probs scores seq shape temperature "
        "tokens".split()
    )

    def __init__(
        self,
        seq: Sequence,
        shape: TreeShape,
        *,
        max_depth: int,
        max_nodes: int,
        cutoff: Cutoff | None = None,
        temperature: float = GREEDY,
    ) -> None:
        self.seq = seq
        self.shape = shape
        self.max_depth = max_depth
        self.max_nodes = max_nodes
        self.cutoff = cutoff or Cutoff()
        self.temperature = seq.request.params.temperature or temperature  # paths of a deterministic tree are scored so
        self.tokens = [seq.pending]
        self.parents = [-1]
        self.depths = [0]
        self.scores = [0.0]  # log probability of the path, with the shape's decay
        self.probs = [1.0]  # draft probability of the node itself
        self.distributions: dict[int, Tensor] = {}  # node -> [V] the distribution its children were drawn from
        self.expanded: list[int] = []  # nodes fed so far, in order; the first is the pending token
        self.frontier = [0] if min(max_depth, max_nodes) > 0 else []  # nodes to feed next

    def path(self, node: int) -> list[int]:
        """Draft tokens from below the pending token to `node`."""
        path = []
        while node > 0:
            path.append(self.tokens[node])
            node = self.parents[node]
        return path[::-1]

    def rows_above(self) -> list[list[int]]:
        """For each frontier node the guess rows of its ancestors, topmost first.

        Guess row r is the r-th node fed after the pending token, whose own row belongs to the text.
        """
        row_of = {node: row for row, node in enumerate(self.expanded, start=-1)}
        above = []
        for node in self.frontier:
            rows, node = [], self.parents[node]
            while node > 0:
                rows.append(row_of[node])
                node = self.parents[node]
            above.append(rows[::-1])
        return above

    def add(self, parent: int, token: int, log_prob: float, prob: float) -> None:
        """One more child of `parent`, the last among its siblings."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.depths.append(self.depths[parent] + 1)
        self.scores.append(self.scores[parent] + log_prob + self.shape.decay)
        self.probs.append(prob)

    def is_unsure(self, node: int) -> bool:
        """Whether a branch ends at this node: it stays, and nothing hangs below it."""
        if self.probs[node] < self.cutoff.token:
            return True
        path = 1.0  # by the guesser's own probabilities: scores may be of another temperature, and decay
        while node > 0 and self.cutoff.path > 0:
            path *= self.cutoff.chance(self.probs[node])
            node = self.parents[node]
        return path < self.cutoff.path
