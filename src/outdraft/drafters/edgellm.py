r"""EdgeLLM: read the node with the most probable path, one after another, until no path is probable enough.

    before a pass    feed the likeliest node, again and again; once its path is less probable than `Budget.survival`
                     (theta of the policy `branch_pacing`) drafting falls back to verification
    beside a pass    go on at the likeliest nodes, without a threshold: the time is free
    after it         the accepted path becomes text; what hangs below it stands, and the next round begins with it

    p - a (0.7) - b (0.6)          text goes on with a, b:     b - c (0.9) - ...
      \           \ d (0.2)                                      \ e (0.1)
       x (0.2)     ...             with anything that was not guessed: an empty tree

A path's probability is the product of its nodes' from the pending token on, whichever round they were guessed in. A
node is fed as a text of its own: what its path has in common with the path fed before is remembered, so going on with a
branch costs one row, and going over to another costs those in which the two differ. Xu et al., "LLMCad: fast and
scalable on-device large language model inference", 2023, https://arxiv.org/abs/2309.04255 (later "EdgeLLM: fast
on-device LLM inference with speculative decoding", 2025). Data in: sequences; data out: deterministic trees.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch

from outdraft.core.draft import Continuation, Draft, host_tree
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import top_rows
from outdraft.drafters.shared.limits import MAX_NODES, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.load_draft import ModelOptions
from outdraft.drafters.shared.networks.own_model import DraftModel, ModelDrafter, Text, describe_model, open_model
from outdraft.models.networks.port import TargetPort
from outdraft.options.ranges import check_range

Child = tuple[int, float]  # a token, and the draft model's probability of it


class PacedTree:
    """Node 0 is the pending token; parents precede their children."""

    __slots__ = ("_length", "depths", "fed", "parents", "paths", "probs", "tokens")

    def __init__(self, length: int) -> None:
        self._plant(length)

    def _plant(self, length: int) -> None:
        self._length = length  # of the text that ends with node 0
        self.tokens, self.parents, self.depths = [-1], [-1], [0]
        self.probs, self.paths = [1.0], [1.0]  # of a node; of the path to it
        self.fed = [False]  # whether its children are known

    @property
    def num_fed(self) -> int:
        """Nodes whose children are known."""
        return sum(self.fed)

    def path(self, node: int) -> list[int]:
        """Tokens from below the pending one to `node`."""
        found = []
        while node > 0:
            found.append(self.tokens[node])
            node = self.parents[node]
        return found[::-1]

    def follow(self, tokens: Seq[int]) -> None:
        """The text has grown: keep what hangs below its new end, or nothing."""
        root: int | None = 0
        for token in tokens[self._length :]:
            root = next(
                (i for i, parent in enumerate(self.parents) if parent == root and self.tokens[i] == token), None
            )
            if root is None:
                self._plant(len(tokens))
                return
        if root:
            self._keep_below(root)
        self._length = len(tokens)

    def _keep_below(self, root: int) -> None:
        kept = {root: 0}
        for node in range(root + 1, len(self.tokens)):
            if self.parents[node] in kept:
                kept[node] = len(kept)
        depth = self.depths[root]
        self.parents = [-1, *(kept[self.parents[node]] for node in kept if node != root)]
        self.tokens = [self.tokens[node] for node in kept]
        self.depths = [self.depths[node] - depth for node in kept]
        self.probs = [1.0, *(self.probs[node] for node in kept if node != root)]
        self.paths = [1.0]
        for parent, prob in zip(self.parents[1:], self.probs[1:], strict=True):
            self.paths.append(self.paths[parent] * prob)
        self.fed = [self.fed[node] for node in kept]

    def likeliest(self, max_depth: int, max_nodes: int, least: float = 0.0) -> int | None:
        """The node with the most probable path that is not fed and may have children; None where there is none, or
        where they would not be offered.

        `least`: a branch ends at a less probable token. The best `max_nodes` are offered, and a child is never more
        probable than its parent.
        """
        shallow = (node for node, fed in enumerate(self.fed) if not fed and self.depths[node] < max_depth)
        best = max(
            (node for node in shallow if self.probs[node] >= least),
            key=lambda node: (self.paths[node], -node),
            default=None,
        )
        if best is None or sum(path > self.paths[best] for path in self.paths) > max_nodes:
            return None
        return best

    def feed(self, node: int, children: Iterable[Child]) -> None:
        """What the draft model thinks follows `node`, best first; what it holds for impossible is left out."""
        self.fed[node] = True
        for token, prob in children:
            if prob <= 0:
                break
            self.tokens.append(token)
            self.parents.append(node)
            self.depths.append(self.depths[node] + 1)
            self.probs.append(prob)
            self.paths.append(self.paths[node] * prob)
            self.fed.append(False)

    def draft(self, pending: int, *, max_depth: int, max_nodes: int, confident: bool) -> Draft:
        """The best nodes, each with its ancestors. `confident`: with their probabilities."""
        nodes = [node for node, depth in enumerate(self.depths) if 0 < depth <= max_depth]
        best = sorted(nodes, key=lambda node: (-self.paths[node], node))[:max_nodes]
        place = {node: i for i, node in enumerate([0, *sorted(best)])}
        return Draft(
            tokens=torch.tensor([self.tokens[node] if node else pending for node in place]),
            parents=torch.tensor([place[self.parents[node]] if node else -1 for node in place]),
            confidence=torch.tensor([self.probs[node] for node in place]) if confident else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLlmOptions(ModelOptions):
    """Which model, how large a tree. Raises `ConfigError` naming what is out of range."""

    nodes: int = 32  # how many draft nodes are offered to the target in one pass
    branch: int = 3  # how many children a node of the tree may have
    # how many nodes the draft model reads, at most, while the target's pass runs; 0 drafts nothing beside a pass
    window: int = 16

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        check_range(self, "nodes", least=1, most=MAX_NODES)
        check_range(self, "branch", least=1, most=1024)
        check_range(self, "window", least=0, most=MAX_NODES, note="0 drafts nothing beside a pass")


@dataclass(slots=True, kw_only=True)
class Pacing:
    """What the method's own mechanisms did, over all sequences."""

    fallbacks: int = 0  # rounds whose drafting ended because no branch was likely enough
    switches: int = 0  # nodes fed that do not continue the branch fed before
    ahead: int = 0  # nodes fed beside a pass
    kept: int = 0  # nodes fed in an earlier round that came true, or stand below what did, when the next one began


@dataclass(slots=True)
class _Growth:
    """One sequence's tree, and how far it may grow."""

    tree: PacedTree
    budget: Budget
    last: int | None = None  # the node fed last in this round


Choose = Callable[[Sequence, _Growth], int | None]  # the node to feed next; None: enough


class EdgeLlmDrafter(ModelDrafter):
    """A tree for each sequence; one pass of the draft model feeds one node of each."""

    def __init__(self, options: EdgeLlmOptions, model: DraftModel) -> None:
        super().__init__(model, ahead=self.ahead)
        self.pacing = Pacing()
        self._options = options
        self._rounds: dict[int, _Growth] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        super().begin(seqs)
        for seq in seqs:
            self._rounds[seq.id] = _Growth(PacedTree(len(seq.tokens)), Budget(depth=0))

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """What stands of each tree, grown until no branch is likely enough."""
        for seq, budget in zip(seqs, budgets, strict=True):
            own = self._rounds[seq.id]
            own.tree.follow(seq.tokens)
            own.budget, own.last = budget, None
            self.pacing.kept += own.tree.num_fed
        self._grow(seqs, self._worth_waiting)
        return [self._draft(seq, self._rounds[seq.id]) for seq in seqs]

    def _draft(self, seq: Sequence, own: _Growth) -> Draft:
        nodes = usable_nodes(seq, own.budget, self._options.nodes)
        return own.tree.draft(
            seq.pending, max_depth=usable_depth(seq, own.budget), max_nodes=nodes, confident=own.budget.wants_confidence
        )

    def _worth_waiting(self, seq: Sequence, own: _Growth) -> int | None:
        """The likeliest node, as long as the target had better wait for its children."""
        budget, tree = own.budget, own.tree
        depth = min(usable_depth(seq, budget), self.model.room(seq.tokens))
        node = tree.likeliest(depth, usable_nodes(seq, budget, self._options.nodes), budget.confidence)
        if node is None or tree.paths[node] >= budget.survival:
            return node
        self.pacing.fallbacks += 1
        return None

    def ahead(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> list[Continuation | None]:
        """Grow each tree on, as far as `window` allows, until the pass is over. A guess by rank has no distribution, so
        the rule cannot favour what stands behind a leaf."""
        left = {seq.id: self._options.window for seq in seqs}
        judged = {seq.id: max(host_tree(draft).depths) for seq, draft in zip(seqs, drafts, strict=True)}

        def free(seq: Sequence, own: _Growth) -> int | None:
            if is_over() or not left[seq.id] or not own.budget.depth:
                return None
            left[seq.id] -= 1
            depth = min(judged[seq.id] + 1 + own.budget.depth, self.model.room(seq.tokens))
            node = own.tree.likeliest(depth, MAX_NODES)
            self.pacing.ahead += node is not None
            return node

        self._grow(seqs, free)
        return [None] * len(seqs)

    def _grow(self, seqs: Seq[Sequence], choose: Choose) -> None:
        """Feed one node of each tree at a time."""
        live = list(seqs)
        while live:
            asked = [(seq, node) for seq in live if (node := choose(seq, self._rounds[seq.id])) is not None]
            if not asked:
                return
            live = [seq for seq, _ in asked]
            texts = [Text(seq.id, [*seq.tokens, *self._rounds[seq.id].tree.path(node)]) for seq, node in asked]
            logits = self.model.read(texts)
            rows = top_rows(live, list(range(len(live))), logits, self._options.branch)
            for (seq, node), (tokens, _, probs) in zip(asked, rows, strict=True):
                own = self._rounds[seq.id]
                self.pacing.switches += own.last is not None and own.tree.parents[node] != own.last
                own.tree.feed(node, zip(tokens, probs, strict=True))
                own.last = node

    def end(self, seqs: Seq[Sequence]) -> None:
        super().end(seqs)
        for seq in seqs:
            self._rounds.pop(seq.id, None)


METHOD: DrafterMethod[EdgeLlmOptions, TargetPort, EdgeLlmDrafter] = DrafterMethod(
    name="edgellm",
    summary="a smaller model grows a tree at its likeliest branch, before the target's pass and during it",
    build=lambda options, port: EdgeLlmDrafter(options, open_model(options, port)),
    options=EdgeLlmOptions,
    paper=arxiv("2309.04255", "LLMCad: fast and scalable on-device large language model inference"),
    describe=describe_model,
    shape_of=lambda options: "tree",
)
