"""A drafter that writes a block in one pass: a chain of its slots, or a tree over what each slot might be.

What stands behind the network's head may know the tokens chosen before a slot (`Correction`); the pass is one all the
same. Data in: sequences, and the target's states at the taps; data out: chains or trees, as deep as a block is long.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, Paper
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.blocks.kind import BlockKind
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.shared.blocks.texts import BlockTexts
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.choose import takes_argmax
from outdraft.drafters.shared.features.network import whole_logits
from outdraft.drafters.shared.limits import cutoffs_of
from outdraft.drafters.shared.networks.prepare import prepare
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model, new_trees
from outdraft.drafters.shared.state_options import StateOptions
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import BestPaths
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.models.networks.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions(StateOptions):
    """Which network, which tree. Raises `ConfigError` naming what is out of range."""

    # whether a tree that is not drawn keeps the best paths, whatever their level (DDTree); False: EAGLE-2's levels of
    # `width` nodes. A drawn tree has equal levels
    best_first: bool = True


class BlockDrafter(StateDrafter):
    """One pass of the network a round, over all sequences that want a guess."""

    def __init__(self, options: BlockOptions, net: BlockNet, port: TargetPort, traits: Traits) -> None:
        self._texts = BlockTexts(net, port)
        super().__init__(self._texts, net.config.taps, traits)
        self._options, self._net, self._port = options, net, port

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose rows are known."""
        config, options = self._net.config, self._options
        depths = [min(config.depth, depth) for depth in self.depths(seqs, budgets)]
        asked = [seq for seq, depth in zip(seqs, depths, strict=True) if depth > 0]
        states: dict[int, Tensor] = {}
        if asked:
            made = self._texts.blocks([seq.id for seq in asked], [seq.pending for seq in asked])
            states = {seq.id: one for seq, one in zip(asked, made, strict=True)}
        cutoffs = cutoffs_of(budgets, options.confidence_threshold)
        if options.width == 1:
            paths: list[list[int]] = [[] for _ in seqs]

            def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
                for row, token in zip(rows, tokens, strict=True):
                    paths[row].append(token)
                open_rows = rows[:num_open]
                return self._say(step, [states[seqs[i].id] for i in open_rows], [paths[i] for i in open_rows])

            return grow_chains(seqs, depths, ChainNetwork(feed=feed), cutoffs, sample=options.sample)

        def feed_trees(level: int, trees: list[Tree]) -> Tensor:
            nodes = [(tree.seq, [tree.seq.pending, *tree.path(node)]) for tree in trees for node in tree.frontier]
            return self._say(level, [states[seq.id] for seq, _ in nodes], [path for _, path in nodes])

        trees = new_trees(options, seqs, depths, budgets, cutoffs, shape=None, nodes=options.nodes)
        for tree in trees:
            if options.best_first and takes_argmax(tree.seq, options.sample):
                tree.shape = BestPaths(max(1, tree.max_nodes))
        return grow_trees(trees, feed_trees, sample=options.sample)

    def _say(self, step: int, states: Seq[Tensor], paths: Seq[Seq[int]]) -> Tensor:
        """Logits [n, V] behind paths that begin at the anchor and have `step` tokens more."""
        net, first = self._net, self._net.config.first_slot
        h = torch.stack([one[: first + step + 1] for one in states])  # from the anchor's slot on
        scores = net.scores(h[:, -1], self._port.layers.head)
        if net.correction is not None:
            before = torch.tensor([[*path[:first], *path] for path in paths], device=h.device)
            scores = net.correction(scores, h[:, -1], net.correction.summaries(h, before)[:, -1])
        return whole_logits(scores, net.vocab, self._port.facts.vocab_size)


def block_method(
    kind: BlockKind[Any], *, summary: str, paper: Paper, also_called: tuple[str, ...] = ()
) -> DrafterMethod[BlockOptions, TargetPort, BlockDrafter]:
    """The registration of a method with networks of this kind."""

    def build(chosen: BlockOptions, port: TargetPort) -> BlockDrafter:
        home, native = chosen_model(chosen.model, kind.name), port.layers.native
        net = kind.load(home, port.facts)
        weights = prepare(net, port, chosen.quantization)
        net.exact = True
        options = chosen.fitted(None if native is None else native.kernels)
        return BlockDrafter(options, net, port, Traits(weights=(weights,), home=home))

    return DrafterMethod(
        name=kind.name,
        summary=summary,
        build=build,
        options=BlockOptions,
        paper=paper,
        also_called=also_called,
        shape_of=lambda chosen: "chain" if chosen.width == 1 else "tree",
        forms={"chain": {"width": 1}, "tree": {"width": 4}},
    )
