"""EAGLE's drafter: a chain, or the dynamic tree of EAGLE-2, by a network that reads the target's features.

Li et al., "EAGLE-2: faster inference of language models with dynamic draft trees", 2024,
https://arxiv.org/abs/2406.16858; "EAGLE-3: scaling up inference acceleration of large language models via training-time
test", 2025, https://arxiv.org/abs/2503.01840.

    level 0   the last pair's output predicts the children of the pending token
    level l   the `width` most probable paths are expanded, each with `width` children; the best `nodes` remain

Data in: sequences, and the target's hidden states at the taps; data out: chains or trees, each sequence its own.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.ranges import MOST_NODES, check_range
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.core.weights import Weights
from outdraft.drafters.eagle.net import load_eagle, pack_guesser
from outdraft.drafters.eagle.pairs import Pairs
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.choose import Sample
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.limits import Cutoff, cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.exact import make_exact
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import Beam
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.models.port import TargetPort
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleOptions(DrawOptions):
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    model: str = "zoo:eagle"  # directory, hub name or "zoo:<name>"; it belongs to one target
    width: int = 4  # children of an expanded node, and nodes expanded on a level; 1: a chain
    nodes: int = 16  # draft nodes that remain of a tree; the paper's: width 10, 59 nodes
    sample: Sample = "greedy"  # the most probable tokens, or drawn as the request draws ("match")

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        check_range(self, "width", "nodes", least=1, most=MOST_NODES)


class EagleDrafter:
    """One pass of the network a token (chain) or a level (tree), over all sequences that still want one."""

    def __init__(self, options: EagleOptions, pairs: Pairs, weights: tuple[Weights, ...] = ()) -> None:
        self.needs = Needs(taps=tuple(pairs.net.config.taps))
        self.traits = Traits(weights=weights)
        self._options = options
        self._pairs = pairs

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        return self._pairs.is_empty

    def begin(self, seqs: Seq[Sequence]) -> None:
        """An empty memory for each."""
        for seq in seqs:
            self._pairs.add(seq.id)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose features are known."""
        depths = [
            usable_depth(seq, budget) if self._pairs.knows(seq) else 0
            for seq, budget in zip(seqs, budgets, strict=True)
        ]
        grow = self._chains if self._options.width == 1 else self._trees
        drafts = grow(seqs, depths, budgets, cutoffs_of(budgets, self._options.confidence_threshold))
        for seq, depth in zip(seqs, depths, strict=True):
            if depth > 1:
                self._pairs.drop_guess(seq.id)
        return drafts

    def observe(self, seen: Seq[Seen]) -> None:
        """Learn the committed rows' true features."""
        for one in seen:
            if one.seq.finish_reason is None:
                self._pairs.learn(one)

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._pairs.free(seq.id)

    def _chains(
        self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget], cutoffs: Seq[Cutoff]
    ) -> list[Draft]:
        network = self._pairs.chain_network([seq.id for seq in seqs])
        return grow_chains(seqs, depths, network, cutoffs, sample=self._options.sample)

    def _trees(self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget], cutoffs: Seq[Cutoff]) -> list[Draft]:
        outputs: dict[int, dict[int, Tensor]] = {}  # sequence -> node -> [D]

        def feed(level: int, trees: list[Tree]) -> Tensor:
            if level == 0:
                made, logits = self._pairs.read([tree.seq.id for tree in trees])
            else:
                parents = [outputs[tree.seq.id][tree.parents[node]] for tree in trees for node in tree.frontier]
                made, logits = self._pairs.branch(trees, torch.stack(parents))
            rows = iter(made)
            for tree in trees:
                outputs.setdefault(tree.seq.id, {}).update((node, next(rows)) for node in tree.frontier)
            return logits

        options = self._options
        shape = Beam(options.width, options.width)
        trees = [
            Tree(seq, shape, max_depth=depth, max_nodes=usable_nodes(seq, budget, options.nodes), cutoff=cutoff)
            for seq, depth, budget, cutoff in zip(seqs, depths, budgets, cutoffs, strict=True)
        ]
        return grow_trees(trees, feed, sample=options.sample)


def build(options: EagleOptions, port: TargetPort) -> EagleDrafter:
    """Load the network for this target."""
    net = load_eagle(resolve(options.model), port)
    weights = module_weights(net, native=port.layers.native is not None)  # packing takes parameters out of the net
    native = pack_guesser(net, port.layers.native) if port.layers.native is not None else None
    if native is None:
        make_exact(net)
        net.exact = True
    return EagleDrafter(options, Pairs(net, port, max_len=port.facts.max_len, native=native), (weights,))
