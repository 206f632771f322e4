"""A drafter at feature level: a chain, or a tree, by a network that reads the target's hidden states.

Li et al., "EAGLE-2: faster inference of language models with dynamic draft trees", 2024,
https://arxiv.org/abs/2406.16858; "EAGLE-3: scaling up inference acceleration of large language models via training-time
test", 2025, https://arxiv.org/abs/2503.01840.

    level 0   the last pair's output predicts the children of the pending token
    level l   the `width` most probable paths are expanded, each with `width` children; the best `nodes` remain
              (or, drawn, a level is so many paths that are drawn together; or a tree of one fixed shape: `shape`)

Data in: sequences, and the target's hidden states at the taps; data out: chains or trees, each sequence its own.
"""

from collections.abc import Sequence as Seq
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.core.weights import Weights
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.features.native import pack_network
from outdraft.drafters.shared.features.network import FeatureNet
from outdraft.drafters.shared.features.options import FeatureOptions
from outdraft.drafters.shared.features.pairs import Pairs
from outdraft.drafters.shared.limits import Cutoff, cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.exact import make_exact
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.networks.rounding import grid_of, round_linears
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import dynamic
from outdraft.drafters.shared.trees.tree import Shape, Tree
from outdraft.models.networks.native import can_pack
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.weights.hub import resolve
from outdraft.weights.pickled import PICKLED


class FeatureDrafter:
    """One pass of the network a token (chain) or a level (tree), over all sequences that still want one."""

    def __init__(
        self, options: FeatureOptions, pairs: Pairs, weights: tuple[Weights, ...] = (), *, shape: Shape | None = None
    ) -> None:
        self.needs = Needs(taps=pairs.net.form.taps)
        home = None if options.model is None else resolve(options.model, also=[PICKLED])
        self.traits = Traits(weights=weights, home=home, hands_states=options.width == 1)
        self._options = options
        self._shape = shape
        self._pairs = pairs

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        return self._pairs.is_empty

    def begin(self, seqs: Seq[Sequence]) -> None:
        """A memory for each, empty but for what an earlier text of the same beginning left."""
        for seq in seqs:
            self._pairs.add(seq)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose features are known."""
        depths = [
            usable_depth(seq, budget) if self._pairs.knows(seq) else 0
            for seq, budget in zip(seqs, budgets, strict=True)
        ]
        grow = self._chains if self._options.width == 1 else self._trees
        try:
            return grow(seqs, depths, budgets, cutoffs_of(budgets, self._options.confidence_threshold))
        finally:  # also where the cache became full on the way
            for seq, depth in zip(seqs, depths, strict=True):
                if depth > 1:
                    self._pairs.drop_guess(seq.id)

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

        options, trees = self._options, []
        for seq, depth, budget, cutoff in zip(seqs, depths, budgets, cutoffs, strict=True):
            nodes = usable_nodes(seq, budget, options.nodes)
            shape = self._shape or dynamic(seq, options.sample, width=options.width, depth=depth, nodes=nodes)
            trees.append(Tree(seq, shape, max_depth=depth, max_nodes=nodes, cutoff=cutoff))
        return grow_trees(trees, feed, sample=options.sample)


def draft_with(
    net: FeatureNet, options: FeatureOptions, port: TargetPort, *, shape: Shape | None = None
) -> FeatureDrafter:
    """A drafter over the network: on the native kernels where they run the target and know its layers, else through
    PyTorch. `shape`: of its trees; None: the dynamic one.
    """
    assert isinstance(net, nn.Module)
    target = port.layers.native
    if target is not None and not (
        can_pack(net.shape, target.dtype, target.device) and target.config.norm != "layer"  # its own norm may be read
    ):
        target = None
    grid = grid_of(options.quantization, auto="none" if target is None else "int4")
    if grid is not None:
        round_linears(net, grid)
    weights = module_weights(net, native=target is not None, grid=grid)
    if target is None:
        make_exact(net)
        net.exact, native = True, None
    else:
        native = pack_network(net, target, grid)
    return FeatureDrafter(options, Pairs(net, port, max_len=port.facts.max_len, native=native), (weights,), shape=shape)


def chosen_model(options: FeatureOptions, kind: str) -> Path:
    """Where the network lies. Raises `ConfigError` where none was named."""
    if options.model is None:
        raise ConfigError(
            f"{kind} needs the network of its target: model=DIR, made by `outdraft train {kind}` or published "
            "(docs/convert.md)"
        )
    return resolve(options.model, also=[PICKLED])
