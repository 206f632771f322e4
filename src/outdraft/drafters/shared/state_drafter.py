"""A drafter with a network on the target's states: the verbs that keep what is known of each text, and its trees.

Data in: what passes showed; data out: how deep each guess may be, and the trees that it begins as.
"""

from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Protocol

from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.drafters.shared.limits import cutoffs_of, usable_depth, usable_nodes
from outdraft.drafters.shared.plain import PlainDrafter
from outdraft.drafters.shared.state_options import StateOptions
from outdraft.drafters.shared.trees.shapes import dynamic
from outdraft.drafters.shared.trees.tree import Tree, TreeShape
from outdraft.options.errors import ConfigError
from outdraft.weights.hub import resolve


class States(Protocol):
    """What is known of each text."""

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Texts that joined; nothing is known of them yet, but for what earlier texts left."""

    def learn(self, one: Seen) -> None:
        """What a pass showed of one."""

    def knows(self, seq: Sequence) -> bool:
        """Whether there is a state behind which the pending token stands."""

    def room(self, seq: Sequence) -> int:
        """How many tokens may be drafted behind it."""

    def forget(self, seqs: Seq[Sequence]) -> None:
        """Texts that are over: drop what is known of them."""


class StateDrafter(PlainDrafter):
    """`taps`: which states of the target it reads."""

    def __init__(self, states: States, taps: tuple[int, ...], traits: Traits) -> None:
        self.needs, self.traits = Needs(taps=taps), traits
        self._known = states

    @property
    def is_empty(self) -> bool:
        return self._known.is_empty

    def begin(self, seqs: Seq[Sequence]) -> None:
        self._known.begin(seqs)

    def depths(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[int]:
        """Of each guess; 0 where the state behind which the pending token stands is not known, or the text has outgrown
        the network's own context."""
        both = zip(seqs, budgets, strict=True)
        known = self._known
        return [min(usable_depth(seq, budget), known.room(seq)) if known.knows(seq) else 0 for seq, budget in both]

    def observe(self, seen: Seq[Seen]) -> None:
        """Take the committed rows' states."""
        for one in seen:
            if one.seq.finish_reason is None:
                self._known.learn(one)

    def end(self, seqs: Seq[Sequence]) -> None:
        self._known.forget(seqs)


def new_trees(
    options: StateOptions,
    seqs: Seq[Sequence],
    depths: Seq[int],
    budgets: Seq[Budget],
    shape: TreeShape | None,
    nodes: int,
) -> list[Tree]:
    """A tree for each sequence, of at most `nodes` nodes. `shape`: a fixed one; None: the dynamic one."""
    trees, cutoffs = [], cutoffs_of(budgets, options.confidence_threshold)
    for seq, depth, budget, cutoff in zip(seqs, depths, budgets, cutoffs, strict=True):
        most = usable_nodes(seq, budget, nodes)
        own = shape or dynamic(seq, options.sample, width=options.width, depth=depth, nodes=most)
        trees.append(Tree(seq, own, max_depth=depth, max_nodes=most, cutoff=cutoff))
    return trees


def chosen_model(model: str | None, kind: str, *, also: Seq[str] = ()) -> Path:
    """Where the network of the method `kind` lies; `also`: files of it with other names than usual.

    Raises `ConfigError` where none was named.
    """
    if model is None:
        raise ConfigError(
            f"{kind} needs the network of its target: model=DIR, made by `outdraft train {kind}` or published "
            "(docs/convert.md)"
        )
    return resolve(model, also=also)
