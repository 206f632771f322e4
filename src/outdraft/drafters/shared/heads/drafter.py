"""A drafter made of heads on the target's last state: a head a token of a chain, or a level of a tree.

What a head says may depend on the tokens guessed before its own, or not: that is the method's affair (`Ask`). Data in:
sequences, and the target's last states; data out: chains or trees, as deep as there are heads.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from typing import Protocol

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.core.weights import Weights
from outdraft.drafters.shared.chains.grow import grow_chains
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.heads.config import HeadConfig, HeadOptions, head_shape
from outdraft.drafters.shared.heads.last_state import LastStates
from outdraft.drafters.shared.heads.stem import Stem, StemConfig
from outdraft.drafters.shared.heads.text_states import TextStates
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.trees.growth import grow_trees
from outdraft.drafters.shared.trees.shapes import Template, dynamic
from outdraft.drafters.shared.trees.template import read_template
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.models.networks.port import TargetPort
from outdraft.options.paths import user_path

# states [n, D], sequences, and as many tokens since of each, the pending one first -> logits [n, V] of the next
Ask = Callable[[Tensor, Seq[Sequence], Seq[list[int]]], Tensor]


class States(Protocol):
    """The states that the heads read: what `LastStates` and `TextStates` are."""

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        ...

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Texts that joined; nothing is known of them yet."""
        ...

    def learn(self, one: Seen) -> None:
        """What a pass showed of one."""
        ...

    def knows(self, seq: Sequence) -> bool:
        """Whether there is a state behind which the pending token stands."""
        ...

    def of(self, seqs: Seq[Sequence]) -> Tensor:
        """One a sequence, which may be named several times: [n, D]."""
        ...

    def forget(self, seqs: Seq[Sequence]) -> None:
        """Texts that are over: drop what is known of them."""
        ...


def states_of(
    config: HeadConfig, port: TargetPort, stem: Stem | None = None, finish: Callable[[Tensor], Tensor] | None = None
) -> States:
    """What heads of these sizes read: the target's last states behind its norm, or what a stem makes of them.

    `finish`: what is done to the stem's outputs [n, D], once for each.
    """

    def norm(h: Tensor) -> Tensor:
        return port.layers.norm(h) * config.scale

    if stem is None:
        return LastStates(config.tap, norm)
    assert isinstance(config, StemConfig)
    return TextStates(stem, config, norm, port, finish)


def embedded_paths(port: TargetPort, seqs: Seq[Sequence], paths: Seq[list[int]]) -> Seq[Tensor]:
    """The target's embeddings of paths of one length, each of which begins at its text's pending token: [n, D] each."""
    length = len(paths[0])
    places = [[seq.position(len(seq.tokens) - 1) + i for i in range(length)] for seq in seqs]
    embeds = port.layers.embed(torch.tensor(paths).flatten(), torch.tensor(places).flatten())
    return embeds.view(len(seqs), length, -1).unbind(1)


class HeadDrafter:
    """One head a step or level, over all sequences that still want one."""

    def __init__(
        self, options: HeadOptions, config: HeadConfig, ask: Ask, states: States, weights: tuple[Weights, ...]
    ) -> None:
        self.needs = Needs(taps=(config.tap,))
        self.traits = Traits(weights=weights)
        self._options, self._config, self._ask = options, config, ask
        self._states = states
        self._template = None if options.tree is None else read_template(user_path(options.tree)).paths

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        return self._states.is_empty

    def begin(self, seqs: Seq[Sequence]) -> None:
        """A place for what will be known of them."""
        self._states.begin(seqs)

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose last state is known."""
        depths = [
            min(self._config.num_heads, usable_depth(seq, budget)) if self._states.knows(seq) else 0
            for seq, budget in zip(seqs, budgets, strict=True)
        ]
        options, cutoffs = self._options, cutoffs_of(budgets, self._options.confidence_threshold)
        if head_shape(options) == "chain":
            paths: list[list[int]] = [[] for _ in seqs]

            def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
                for row, token in zip(rows, tokens, strict=True):
                    paths[row].append(token)
                asked = rows[:num_open]
                return self._say([seqs[row] for row in asked], [paths[row] for row in asked])

            return grow_chains(seqs, depths, ChainNetwork(feed=feed), cutoffs, sample=options.sample)

        def feed_trees(level: int, trees: list[Tree]) -> Tensor:
            asked = [(tree.seq, [tree.seq.pending, *tree.path(node)]) for tree in trees for node in tree.frontier]
            return self._say([seq for seq, _ in asked], [path for _, path in asked])

        template, trees = self._template, []
        fixed = None if template is None else Template(template)
        most = options.nodes if template is None else len(template)
        for seq, depth, budget, cutoff in zip(seqs, depths, budgets, cutoffs, strict=True):
            nodes = usable_nodes(seq, budget, most)
            shape = fixed or dynamic(seq, options.sample, width=options.width, depth=depth, nodes=nodes)
            trees.append(Tree(seq, shape, max_depth=depth, max_nodes=nodes, cutoff=cutoff))
        return grow_trees(trees, feed_trees, sample=options.sample)

    def _say(self, seqs: Seq[Sequence], paths: Seq[list[int]]) -> Tensor:
        return self._ask(self._states.of(seqs), seqs, paths)

    def observe(self, seen: Seq[Seen]) -> None:
        """Keep the last committed row's state."""
        for one in seen:
            if one.seq.finish_reason is None:
                self._states.learn(one)

    def end(self, seqs: Seq[Sequence]) -> None:
        self._states.forget(seqs)
