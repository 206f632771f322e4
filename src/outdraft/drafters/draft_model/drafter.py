"""A smaller model writes ahead: a chain (Leviathan, Chen), or a tree (SpecInfer's expansion, RSD-C and RSD-S, MCSD).

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192; Jeon et al., "Recursive speculative decoding: accelerating LLM inference via sampling
without replacement", 2024, https://arxiv.org/abs/2402.14160; Miao et al., "SpecInfer", 2023,
https://arxiv.org/abs/2305.09781; Yang et al., "Multi-candidate speculative decoding", 2024,
https://arxiv.org/abs/2401.06706.

    read the text's new tokens -> q1 -> t1 -> q2 -> t2 ...       q: the draft's law, warped as the request's own

Data in: sequences; data out: chains or trees with the laws they were drawn from (none at temperature 0, where the guess
is an argmax).
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Budget
from outdraft.core.ranges import check_range
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.draft_model.static import StaticDraftModel
from outdraft.drafters.shared.choose import Sample, check_sample, takes_plain_argmax
from outdraft.drafters.shared.draft_model import DraftModel
from outdraft.drafters.shared.growth import grow_trees
from outdraft.drafters.shared.limits import MAX_NODES, floors, usable_depth, usable_nodes
from outdraft.drafters.shared.load_draft import ModelOptions, describe_network, load_draft
from outdraft.drafters.shared.shapes import Beam, Joint, Levels, num_nodes
from outdraft.drafters.shared.tree import Shape, Tree
from outdraft.models.base import Decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftModelOptions(ModelOptions):
    """Which model, which shape, how to draw. Raises `ConfigError` naming what is out of range."""

    width: int = 1  # children of an expanded node, and nodes expanded on a level; 1: a chain
    expansion: tuple[int, ...] = ()  # instead: children of every node, level by level; (1, 1, 3, 1, 1) is SpecInfer's
    beam: int = 0  # instead: nodes of a level, drawn together as a stochastic beam, which is RSD-S; 0: no
    replacement: bool = False  # sampled siblings are drawn independently of each other
    sample: Sample = "match"  # draw as the request does, or always the argmax ("greedy")
    confidence_threshold: float = 0.0  # a token less probable than this is kept and ends its branch; 0: never

    def __post_init__(self) -> None:
        ModelOptions.__post_init__(self)
        check_sample(self.sample)
        object.__setattr__(self, "expansion", tuple(self.expansion))
        check_range(self, "width", least=1, note="1 is a chain")
        check_range(self, "beam", least=0, most=MAX_NODES, note="0 is no beam")
        check_range(self, "expansion", least=1, note="children of a node, level by level")
        if self.beam and (self.width > 1 or self.expansion or self.replacement):
            raise ConfigError(f"beam={self.beam} is a shape of its own: leave width, expansion and replacement out")
        if num_nodes(self.expansion) > MAX_NODES:
            raise ConfigError(
                f"expansion={self.expansion} asks for {num_nodes(self.expansion)} nodes: {MAX_NODES} are the most"
            )
        check_range(self, "confidence_threshold", least=0, most=1)

    @property
    def is_chain(self) -> bool:
        """Whether no node has two children."""
        return max(self.width, self.beam) == 1 and all(count == 1 for count in self.expansion)


class DraftModelDrafter:
    """One draft pass a token (chain) or a level (tree), over all sequences that still want one."""

    needs = Needs()

    def __init__(self, options: DraftModelOptions, model: DraftModel) -> None:
        self.model = model
        # A text may lose its end again, unless the host does not know what was guessed.
        self.rewinds = not isinstance(model, StaticDraftModel)
        self._options = options

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Memory for each; the prompt is read when the first guess is wanted."""
        for seq in seqs:
            self.model.add(seq.id)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose text the draft model's context can hold."""
        depths = [self._depth(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]
        if self._options.is_chain:
            return self._chains(seqs, depths, budgets)
        return self._trees(seqs, depths, budgets)

    def observe(self, seen: Seq[Seen]) -> None:
        """The text says what was accepted; only a guess that never left the device has to be told."""
        if isinstance(self.model, StaticDraftModel):
            for one in seen:
                if one.verdict is not None:
                    self.model.confirm(one.seq, len(one.verdict.path))

    def end(self, seqs: Seq[Sequence]) -> None:
        """Free the memory."""
        for seq in seqs:
            self.model.free(seq.id)

    def _depth(self, seq: Sequence, budget: Budget) -> int:
        levels = len(self._options.expansion) or budget.depth
        return min(usable_depth(seq, budget), levels, self.model.room(seq.tokens))

    def _chains(self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget]) -> list[Draft]:
        options = self._options
        asked = any(end.is_asked for end in floors(len(seqs), options.confidence_threshold, budgets))
        plain = not asked and all(takes_plain_argmax(seq, options.sample) for seq in seqs)
        if plain and isinstance(self.model, StaticDraftModel):
            return self.model.chains(seqs, depths)
        return self.model.grow_chains(
            seqs, depths, sample=options.sample, confidence_threshold=options.confidence_threshold, budgets=budgets
        )

    def _trees(self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget]) -> list[Draft]:
        options, width = self._options, self._options.width
        if options.beam:
            shape: Shape = Joint(options.beam)
        else:
            shape = Levels(options.expansion) if options.expansion else Beam(width, width)
        ends = floors(len(seqs), options.confidence_threshold, budgets)
        trees = []
        for seq, depth, budget, end in zip(seqs, depths, budgets, ends, strict=True):
            # Nodes that grow without a limit.
            complete = options.beam * depth or num_nodes(options.expansion[:depth]) or width + width**2 * (depth - 1)
            nodes = usable_nodes(seq, budget, complete)
            trees.append(Tree(seq, shape, max_depth=depth, max_nodes=nodes, floor=end))
        return grow_trees(trees, self.model.feed_trees, sample=options.sample, replacement=options.replacement)


def build(options: DraftModelOptions, port: TargetPort) -> DraftModelDrafter:
    """Load the draft model beside the target and check that the two speak of the same ids."""
    decoder = load_draft(options, port, exact=port.record is None or not options.is_chain)
    if port.record is not None and isinstance(decoder, Decoder) and options.is_chain:
        return DraftModelDrafter(options, StaticDraftModel(decoder, port.record))
    return DraftModelDrafter(options, DraftModel(decoder))


def describe(drafter: DraftModelDrafter) -> Mapping[str, Any]:
    """What the model's options came to."""
    return describe_network(drafter.model.decoder)
