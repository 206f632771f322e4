"""A drafter at feature level: a chain, or a tree, by a network that reads the target's hidden states.

Li et al., "EAGLE-2: faster inference of language models with dynamic draft trees", 2024,
https://arxiv.org/abs/2406.16858; "EAGLE-3: scaling up inference acceleration of large language models via training-time
test", 2025, https://arxiv.org/abs/2503.01840.

    level 0   the last pair's output predicts the children of the pending token
    level l   the `width` most probable paths are expanded, each with `width` children; the best `nodes` remain
              (or, drawn, a level is so many paths that are drawn together; or a tree of one fixed shape: `shape`)

Data in: sequences, and the target's hidden states at the taps; data out: chains or trees, each sequence its own.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, Paper
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.weights import Weights
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.features.network import FeatureNet, pack_network
from outdraft.drafters.shared.features.pairs import Pairs
from outdraft.drafters.shared.limits import cutoffs_of
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.networks.prepare import make_exact
from outdraft.drafters.shared.networks.rounding import grid_of, round_linears
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model, new_trees
from outdraft.drafters.shared.state_options import StateOptions
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.models.networks.guess import NativeGuesser
from outdraft.models.networks.native import can_pack
from outdraft.models.networks.port import TargetPort
from outdraft.weights.hub import resolve
from outdraft.weights.pickled import PICKLED

Options = TypeVar("Options", bound=StateOptions)


class FeatureDrafter(StateDrafter):
    """One pass of the network a token (chain) or a level (tree), over all sequences that still want one."""

    def __init__(self, options: StateOptions, pairs: Pairs, weights: tuple[Weights, ...] = ()) -> None:
        home = None if options.model is None else resolve(options.model, also=[PICKLED])
        ends_early = options.is_chain and pairs.runs_chains
        traits = Traits(
            weights=weights, home=home, shape=options.drafts, ends_early=ends_early, hands_states=options.is_chain
        )
        super().__init__(pairs, pairs.net.taps, traits)
        self._options, self._pairs, self._shape = options, pairs, options.shape

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        depths = self.depths(seqs, budgets)
        grow = self._chains if self._options.is_chain else self._trees
        try:
            return grow(seqs, depths, budgets)
        finally:  # also where the cache became full on the way
            for seq, depth in zip(seqs, depths, strict=True):
                if depth > 1:
                    self._pairs.drop_guess(seq.id)

    def _chains(self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget]) -> list[Draft]:
        network = self._pairs.chain_network([seq.id for seq in seqs])
        cutoffs = cutoffs_of(budgets, self._options.confidence_threshold)
        return grow_chains(seqs, depths, network, cutoffs, sample=self._options.sample)

    def _trees(self, seqs: Seq[Sequence], depths: list[int], budgets: Seq[Budget]) -> list[Draft]:
        outputs: dict[int, dict[int, Tensor]] = {}  # sequence -> node -> [D]

        def feed(level: int, trees: list[Tree]) -> Tensor:
            if level == 0:
                made, logits = self._pairs.read_waiting([tree.seq.id for tree in trees])
            else:
                parents = [outputs[tree.seq.id][tree.parents[node]] for tree in trees for node in tree.frontier]
                made, logits = self._pairs.branch(trees, torch.stack(parents))
            rows = iter(made)
            for tree in trees:
                outputs.setdefault(tree.seq.id, {}).update((node, next(rows)) for node in tree.frontier)
            return logits

        trees = new_trees(self._options, seqs, depths, budgets, self._shape, self._options.nodes)
        return grow_trees(trees, feed, sample=self._options.sample)


def on_kernels(net: FeatureNet, options: Options, port: TargetPort) -> tuple[Options, NativeGuesser | None, Weights]:
    """Pack the network where the native kernels run the target and know its layers; None: PyTorch runs it.

    With it the options, fitted to the kernels, and the weights as they are now.
    """
    target = port.layers.native
    options = options.fitted(None if target is None else target.kernels)
    if target is not None and not (
        can_pack(net.shape, target.dtype, target.device) and target.config.norm != "layer"  # its own norm may be read
    ):
        target = None
    grid = grid_of(options.quantization, auto="none" if target is None else "int4")
    if grid is not None:
        round_linears(net, grid, asked=options.quantization != "auto")
    weights = module_weights(net, native=target is not None, grid=grid)
    if target is None:
        make_exact(net)
        net.exact = True
    return options, None if target is None else pack_network(net, target, grid), weights


def feature_method(
    name: str,
    load: Callable[[Path, TargetPort], FeatureNet],
    *,
    summary: str,
    paper: Paper,
    options: type[StateOptions] = StateOptions,
    also_called: tuple[str, ...] = (),
) -> DrafterMethod[StateOptions, TargetPort, FeatureDrafter]:
    """The registration of a method whose network `load` reads for a target."""

    def build(chosen: StateOptions, port: TargetPort) -> FeatureDrafter:
        net = load(chosen_model(chosen.model, name, also=[PICKLED]), port)
        chosen, native, weights = on_kernels(net, chosen, port)
        return FeatureDrafter(chosen, Pairs(net, port, native=native), (weights,))

    return DrafterMethod(
        name=name,
        summary=summary,
        build=build,
        options=options,
        paper=paper,
        also_called=also_called,
        shape_of=lambda chosen: chosen.drafts,
        forms={"chain": {"width": 1}, "tree": {"width": 4}},
    )
