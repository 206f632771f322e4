"""EdgeLLM's drafter: read the node with the most probable path, one after another, until no path is probable enough.

    before a pass    feed the likeliest node, again and again; once its path is less probable than `Budget.survival`
                     (theta of the policy `branch_pacing`) drafting falls back to verification
    beside a pass    go on at the likeliest nodes, without a threshold: the time is free
    after it         what hangs below the accepted path stands; the next round begins with it

Xu et al., "LLMCad", 2023, https://arxiv.org/abs/2309.04255 (later "EdgeLLM", 2025). A node is fed as a text of its own:
what its path has in common with the path fed before is remembered, so going on with a branch costs one row, and going
over to another costs those in which the two differ. Data in: sequences; data out: deterministic trees.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.draft import Continuation, Draft, host_tree
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.drafters.edgellm.tree import PacedTree
from outdraft.drafters.shared.choose import top_rows
from outdraft.drafters.shared.limits import MAX_NODES, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.draft_model import DraftModel, Text
from outdraft.drafters.shared.networks.load_draft import ModelOptions, load_draft, weights_of
from outdraft.models.networks.port import TargetPort
from outdraft.options.ranges import check_range


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
class _Round:
    """One sequence's tree, and how far it may grow."""

    tree: PacedTree
    budget: Budget
    last: int | None = None  # the node fed last in this round


Choose = Callable[[Sequence, _Round], int | None]  # the node to feed next; None: enough


class EdgeLlmDrafter:
    """A tree for each sequence; one pass of the draft model feeds one node of each."""

    needs = Needs()

    def __init__(self, options: EdgeLlmOptions, model: DraftModel) -> None:
        self.model = model
        self.pacing = Pacing()
        self._options = options
        self._rounds: dict[int, _Round] = {}

    @property
    def traits(self) -> Traits:
        """It works beside the pass, with weights of its own."""
        return Traits(ahead=self.ahead, weights=(weights_of(self.model.decoder),))

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Memory for each; the prompt is read when the first guess is wanted."""
        for seq in seqs:
            self.model.add(seq.id)
            self._rounds[seq.id] = _Round(PacedTree(len(seq.tokens)), Budget(depth=0))

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """What stands of each tree, grown until no branch is likely enough."""
        for seq, budget in zip(seqs, budgets, strict=True):
            own = self._rounds[seq.id]
            own.tree.follow(seq.tokens)
            own.budget, own.last = budget, None
            self.pacing.kept += own.tree.num_fed
        self._grow(seqs, self._worth_waiting)
        return [self._draft(seq, self._rounds[seq.id]) for seq in seqs]

    def _draft(self, seq: Sequence, own: _Round) -> Draft:
        nodes = usable_nodes(seq, own.budget, self._options.nodes)
        return own.tree.draft(
            seq.pending, max_depth=usable_depth(seq, own.budget), max_nodes=nodes, confident=own.budget.wants_confidence
        )

    def _worth_waiting(self, seq: Sequence, own: _Round) -> int | None:
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

        def free(seq: Sequence, own: _Round) -> int | None:
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

    def observe(self, seen: Seq[Seen]) -> None:
        """The text says what was accepted."""

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self.model.free(seq.id)
            self._rounds.pop(seq.id, None)


def build(options: EdgeLlmOptions, port: TargetPort) -> EdgeLlmDrafter:
    """Load the draft model and put the drafter over it."""
    return EdgeLlmDrafter(options, DraftModel(load_draft(options, port), cache=port.cache))
