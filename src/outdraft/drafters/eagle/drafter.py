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
from outdraft.core.drafter import Seen
from outdraft.core.policy import Budget
from outdraft.core.ranges import check_range
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.eagle.net import load_eagle, pack_guesser
from outdraft.drafters.eagle.pairs import Pairs
from outdraft.drafters.shared.choose import Sample, check_sample
from outdraft.drafters.shared.exact import make_exact
from outdraft.drafters.shared.growth import grow_trees
from outdraft.drafters.shared.limits import floors, usable_depth, usable_nodes
from outdraft.drafters.shared.native_chains import Floors, grow_chains_natively
from outdraft.drafters.shared.shapes import Beam
from outdraft.drafters.shared.tree import Tree
from outdraft.kernels.guesser import Chains, Draw
from outdraft.models.native import NativeDecoder
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleOptions:
    """Which network, which shape. Raises `ConfigError` naming what is out of range."""

    model: str = "zoo:eagle"  # directory, hub name or "zoo:<name>"; it belongs to one target
    width: int = 4  # children of an expanded node, and nodes expanded on a level; 1: a chain
    nodes: int = 16  # draft nodes that remain of a tree; the paper's: width 10, 59 nodes
    sample: Sample = "greedy"  # the most probable tokens, or drawn as the request draws ("match")
    confidence_threshold: float = 0.0  # a token less probable than this is kept and ends its branch; 0: never

    def __post_init__(self) -> None:
        check_sample(self.sample)
        check_range(self, "width", "nodes", least=1)
        check_range(self, "confidence_threshold", least=0, most=1)


class EagleDrafter:
    """One pass of the network a token (chain) or a level (tree), over all sequences that still want one."""

    def __init__(self, options: EagleOptions, pairs: Pairs) -> None:
        self.needs = Needs(taps=tuple(pairs.net.config.taps))
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
        drafts = grow(seqs, depths, budgets)
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
        """Free the memory."""
        for seq in seqs:
            self._pairs.free(seq.id)

    def _chains(self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget]) -> list[Draft]:
        outputs = torch.empty(0)  # [n, D] of the rows fed last
        fed: list[int] = []

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            nonlocal outputs, fed
            ids = [seqs[i].id for i in rows]
            if step == 0:
                outputs, logits = self._pairs.read(ids)
            else:
                before = outputs if rows == fed else outputs[[fed.index(i) for i in rows]]
                outputs, logits = self._pairs.guess(ids, tokens, before, step)
            fed = rows
            return logits

        def run(rows: list[int], own_depths: list[int], draws: list[Draw | None], least: Floors) -> Chains:
            return self._pairs.chain([seqs[i].id for i in rows], own_depths, draws, least)

        options = self._options
        return grow_chains_natively(
            seqs,
            depths,
            run if self._pairs.runs_chains else None,
            feed,
            sample=options.sample,
            confidence_threshold=options.confidence_threshold,
            budgets=budgets,
        )

    def _trees(self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget]) -> list[Draft]:
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
        shape, ends = Beam(options.width, options.width), floors(len(seqs), options.confidence_threshold, budgets)
        trees = [
            Tree(seq, shape, max_depth=depth, max_nodes=usable_nodes(seq, budget, options.nodes), floor=end)
            for seq, depth, budget, end in zip(seqs, depths, budgets, ends, strict=True)
        ]
        return grow_trees(trees, feed, sample=options.sample)


def build(options: EagleOptions, port: TargetPort) -> EagleDrafter:
    """Load the network for this target."""
    net = load_eagle(resolve(options.model), port)
    native = pack_guesser(net, port.native) if isinstance(port.native, NativeDecoder) else None
    if native is None:
        make_exact(net)
        net.exact = True
    return EagleDrafter(options, Pairs(net, port, max_len=port.max_len, native=native))
