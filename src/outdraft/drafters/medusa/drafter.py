"""Medusa's drafter: one look at the last state, and every head has its say.

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774. A head does not know what the heads before it said, so a
path's probability is the product of its heads'; the tree keeps the most probable paths. Data in: sequences, and the
target's last states; data out: chains or trees, as deep as there are heads.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen, Traits
from outdraft.core.errors import CapabilityError, ConfigError
from outdraft.core.policy import Budget
from outdraft.core.ranges import MOST_NODES, check_range
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.core.weights import Weights
from outdraft.drafters.medusa.net import MedusaNet, load_medusa
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.choose import Sample
from outdraft.drafters.shared.draw_options import DrawOptions
from outdraft.drafters.shared.heads.last_state import LastStates
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.networks.exact import make_exact
from outdraft.drafters.shared.networks.load_draft import module_weights
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import Beam
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.models.port import TargetPort
from outdraft.weights.hub import resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaOptions(DrawOptions):
    """Which heads, which shape. Raises `ConfigError` naming what is out of range."""

    model: str | None = None  # directory or hub name of the heads, which belong to one target; there is no default
    width: int = 4  # children of an expanded node, and nodes expanded on a level; 1: a chain
    nodes: int = 16  # draft nodes that remain of a tree; the paper's: 63
    sample: Sample = "greedy"  # the most probable tokens, or drawn as the request draws ("match")

    def __post_init__(self) -> None:
        DrawOptions.__post_init__(self)
        check_range(self, "width", "nodes", least=1, most=MOST_NODES)


class MedusaDrafter:
    """The heads are asked once a round, for all sequences together."""

    def __init__(self, options: MedusaOptions, net: MedusaNet, weights: tuple[Weights, ...] = ()) -> None:
        self.needs = Needs(taps=(net.config.tap,))
        self.traits = Traits(weights=weights)
        self._options, self._net = options, net
        self._states = LastStates(net.config.tap)

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        return self._states.is_empty

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing is known before the prompt is read."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose last state is known."""
        most = self._net.config.num_heads
        depths = [
            min(most, usable_depth(seq, budget)) if self._states.knows(seq) else 0
            for seq, budget in zip(seqs, budgets, strict=True)
        ]
        said = self._ask(seqs, depths)
        options, cutoffs = self._options, cutoffs_of(budgets, self._options.confidence_threshold)
        if options.width == 1:

            def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
                return torch.stack([said[row][step] for row in rows[:num_open]])

            return grow_chains(seqs, depths, ChainNetwork(feed=feed), cutoffs, sample=options.sample)

        def feed_trees(level: int, trees: list[Tree]) -> Tensor:
            rows = {seq.id: row for row, seq in enumerate(seqs)}
            return torch.stack([said[rows[tree.seq.id]][level] for tree in trees for _ in tree.frontier])

        shape = Beam(options.width, options.width)
        trees = [
            Tree(seq, shape, max_depth=depth, max_nodes=usable_nodes(seq, budget, options.nodes), cutoff=cutoff)
            for seq, depth, budget, cutoff in zip(seqs, depths, budgets, cutoffs, strict=True)
        ]
        return grow_trees(trees, feed_trees, sample=options.sample)

    def _ask(self, seqs: Seq[Sequence], depths: Seq[int]) -> list[list[Tensor]]:
        """What each head says of each sequence that wants it: logits [V], by sequence and depth."""
        said: list[list[Tensor]] = [[] for _ in seqs]
        for head in range(max(depths, default=0)):
            asked = [i for i, depth in enumerate(depths) if depth > head]
            states = self._net.states(self._states.of([seqs[i] for i in asked]), head)
            for i, logits in zip(asked, self._net.logits(states, head), strict=True):
                said[i].append(logits)
        return said

    def observe(self, seen: Seq[Seen]) -> None:
        """Keep the last committed row's state."""
        for one in seen:
            if one.seq.finish_reason is None:
                self._states.learn(one)

    def end(self, seqs: Seq[Sequence]) -> None:
        self._states.forget(seqs)


def build(options: MedusaOptions, port: TargetPort) -> MedusaDrafter:
    """Load the heads. Raises `CapabilityError` for those of another target."""
    if options.model is None:
        raise ConfigError("medusa needs the heads of its target: model=DIR, made by `outdraft train medusa`")
    facts = port.facts
    net = load_medusa(resolve(options.model), facts.dtype, facts.device)
    config = net.config
    own = (config.tap, config.hidden_size, config.vocab_size)
    if own != (facts.num_layers, facts.hidden_size, facts.vocab_size):
        raise CapabilityError(
            f"Medusa heads of a target of {config.tap} layers, width {config.hidden_size} and vocabulary "
            f"{config.vocab_size} cannot draft for one of {facts.num_layers}, {facts.hidden_size} and "
            f"{facts.vocab_size}: they belong to their own target"
        )
    make_exact(net)
    return MedusaDrafter(options, net, (module_weights(net, native=False),))
