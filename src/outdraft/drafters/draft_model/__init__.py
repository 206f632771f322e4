"""A smaller model writes ahead: a chain (Leviathan, Chen), or a tree (SpecInfer's expansion, RSD-C and RSD-S, MCSD).

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192; Jeon et al., "Recursive speculative decoding: accelerating LLM inference via sampling
without replacement", 2024, https://arxiv.org/abs/2402.14160; Miao et al., "SpecInfer", 2023,
https://arxiv.org/abs/2305.09781; Yang et al., "Multi-candidate speculative decoding", 2024,
https://arxiv.org/abs/2401.06706.

    read the text's new tokens -> q1 -> t1 -> q2 -> t2 ...      q: the draft's distribution, warped as the request's own

Data in: sequences; data out: chains or trees with the distributions they were drawn from (none at temperature 0, where
the guess is an argmax).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.draft_model.static import StaticDraftModel
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.limits import MAX_NODES, Cutoff, cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.load_draft import ModelOptions, load_draft
from outdraft.drafters.shared.networks.own_model import DraftModel, ModelDrafter, describe_model
from outdraft.drafters.shared.networks.streaming_cache import StreamWindow
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import Beam, JointBeam, Levels, num_nodes
from outdraft.drafters.shared.trees.tree import Tree, TreeShape
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.fitted import FittedNetwork, unfitted
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModelOptions(DrawOptions, ModelOptions):
    """Which model, which shape, how to draw. Raises `ConfigError` naming what is out of range."""

    width: int = 1  # how many children a node gets, and how many nodes are expanded on a level; 1 is a chain
    # in place of `width`: how many children every node of a level gets, level by level; SpecInfer takes (1, 1, 3, 1,
    # 1)
    expansion: tuple[int, ...] = ()
    # in place of `width`: how many nodes of a level are drawn together, as a stochastic beam (RSD-S); 0 turns it off
    beam: int = 0
    # whether sampled siblings are drawn independently of each other, so that two may be equal
    replacement: bool = False

    # how many of the last tokens the draft model still sees, besides the first `sinks`; none lets it see the whole
    # text
    window: int | None = None
    sinks: int = 4  # with a window: how many tokens at the beginning of the text the draft model always sees

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        DrawOptions.__post_init__(self)
        object.__setattr__(self, "expansion", tuple(self.expansion))
        check_range(self, "width", least=1, most=MAX_NODES, note="1 is a chain")
        check_range(self, "beam", least=0, most=MAX_NODES, note="0 is no beam")
        check_range(self, "expansion", least=1, most=MAX_NODES, note="children of a node, level by level")
        check_range(self, "sinks", least=0, most=1 << 24)
        check_range(self, "window", least=1, most=1 << 24, note="None remembers the whole text")
        if self.beam and (self.width > 1 or self.expansion or self.replacement):
            raise ConfigError(f"beam={self.beam} is a shape of its own: leave width, expansion and replacement out")
        if num_nodes(self.expansion) > MAX_NODES:
            raise ConfigError(
                f"expansion={self.expansion} asks for {num_nodes(self.expansion)} nodes: {MAX_NODES} are the most"
            )

    @property
    def is_chain(self) -> bool:
        """Whether no node has two children."""
        return max(self.width, self.beam) == 1 and all(count == 1 for count in self.expansion)


class DraftModelDrafter(ModelDrafter):
    """One draft pass a token (chain) or a level (tree), over all sequences that still want one."""

    def __init__(self, options: DraftModelOptions, model: DraftModel) -> None:
        # A text may lose its end again, unless the host does not know what was guessed.
        super().__init__(
            model,
            rewinds=model.rewinds,
            home=resolve(options.model),
            ends_early=options.is_chain and model.runs_chains,
            hands_states=options.is_chain,
        )
        self._options = options

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose text the draft model's context can hold."""
        options = self._options
        depths = [self._depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        cutoffs = cutoffs_of(budgets, options.confidence_threshold)
        if options.is_chain:
            return grow_chains(seqs, depths, self.model.chain_network(seqs), cutoffs, sample=options.sample)
        trees = self._trees(seqs, depths, budgets, cutoffs)
        return grow_trees(trees, self.model.feed_trees, sample=options.sample, replacement=options.replacement)

    def observe(self, seen: Seq[Seen]) -> None:
        """The text says what was accepted; only a guess that never left the device has to be confirmed."""
        for one in seen:
            if one.verdict is not None:
                self.model.confirm(one.seq, len(one.verdict.path))

    def _depth(self, seq: Sequence, budget: Budget) -> int:
        levels = len(self._options.expansion) or budget.depth
        return min(usable_depth(seq, budget), levels, self.model.room(seq.tokens))

    def _trees(self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget], cutoffs: Seq[Cutoff]) -> list[Tree]:
        options, width = self._options, self._options.width
        if options.beam:
            shape: TreeShape = JointBeam(options.beam)
        else:
            shape = Levels(options.expansion) if options.expansion else Beam(width, width)
        trees = []
        for seq, depth, budget, cutoff in zip(seqs, depths, budgets, cutoffs, strict=True):
            # Nodes that grow without a limit.
            complete = options.beam * depth or num_nodes(options.expansion[:depth]) or width + width**2 * (depth - 1)
            nodes = usable_nodes(seq, budget, complete)
            trees.append(Tree(seq, shape, max_depth=depth, max_nodes=nodes, cutoff=cutoff))
        return trees


def build(options: DraftModelOptions, port: TargetPort) -> DraftModelDrafter:
    """Load the draft model beside the target and check that the two speak of the same ids."""
    decoder = load_draft(options, port, exact=port.facts.exact or not options.is_chain)
    stream = StreamWindow(sinks=options.sinks, window=options.window) if options.window is not None else None
    record = port.layers.record
    is_torch = isinstance(unfitted(decoder), Decoder)
    if record is not None and is_torch and options.is_chain and stream is None:
        assert isinstance(decoder, Decoder | FittedNetwork)
        return DraftModelDrafter(options, StaticDraftModel(decoder, record))
    return DraftModelDrafter(options, DraftModel(decoder, cache=port.cache, stream=stream))


METHOD = DrafterMethod(
    name="draft_model",
    summary="a smaller model of the same vocabulary writes ahead; a chain, or a tree",
    build=build,
    options=DraftModelOptions,
    paper=arxiv("2211.17192", "Fast inference from transformers via speculative decoding"),
    describe=describe_model,
    shape_of=lambda options: "chain" if options.is_chain else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 3}},
)
