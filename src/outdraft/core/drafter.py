"""The contract of a drafter: four verbs, called by the one loop, and one record of what else it can do.

A drafter that asks other drafters names them in `Traits.inner` and does not repeat their traits: code that needs one
walks through all of them (`inner`).
"""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from torch import Tensor

from outdraft.core.adoption import Adoption
from outdraft.core.draft import Continuation, Draft
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.core.verdict import Verdict
from outdraft.core.weights import Weights
from outdraft.options.base import DraftShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one sequence's pass showed, passed to the drafter after a prompt chunk and after every verification.

    The committed rows are the pending token and the accepted path (or a prompt chunk); `seq.tokens` already holds
    the tokens emitted in this step.
    """

    seq: Sequence
    start: int  # position of the first committed row
    num_committed: int  # n rows went into the target's cache: positions start .. start + n - 1
    hidden: Mapping[int, Tensor] = field(default_factory=dict)  # tap -> [n, D] of the committed rows
    draft: Draft | None = None  # None for a prompt chunk that did not reach the pending token
    logits: Tensor | None = None  # [N, V] raw, at every node of `draft`, rejected and probe nodes included
    verdict: Verdict | None = None


class Ahead(Protocol):
    """Guess beyond `drafts` while the target judges them."""

    def __call__(
        self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]
    ) -> list[Continuation | None]:
        """Perhaps in a thread beside the pass; the loop waits for it before it judges.

        `is_over`: whether the pass has ended, so that nothing that could wait should be begun. Returns, for each draft,
        the token that was drafted behind its last node; None where there is none.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a drafter is, holds and can do beyond its verbs; asked once, when it has been built."""

    ahead: Ahead | None = None  # it works while the target judges what it proposed
    forget: Callable[[], None] | None = None  # drops what earlier requests left behind; asked between requests
    guesses: bool = True  # False: it stands for plain decoding, where no drafter guesses, a grammar neither
    peeks: bool = False  # `propose` costs next to nothing and looks at the tokens alone: a guess may go unused
    quotes: bool = False  # it drafts from a request's references
    rewinds: bool = False  # `propose` looks at the tokens alone, and they may go back on those of the last call
    weights: tuple[Weights, ...] = ()  # its own, without those of the drafters that it asks
    inner: "tuple[Drafter, ...]" = ()  # the drafters that it asks
    home: Path | None = None  # the directory of its own network
    ends_early: bool = False  # a chain ends by `Budget.survival` within one call, which makes it no dearer
    one_pass: bool = False  # a guess of any depth takes the same pass of its network
    foretells: bool = False  # its confidence in a token of a chain does not depend on which token was drawn
    hands_states: bool = False  # it heeds `Budget.judge`: its network has a hidden state for every token of a chain
    shape: DraftShape | None = None  # what it proposes as it was built; None: what its options say
    merges: bool = True  # its guesses are tokens and their ancestors alone, so that those of others may stand beside
    adopt: Adoption | None = None  # its weights may be replaced between two steps; the same object each time


class Drafter(Protocol):
    """Proposes guesses. State belongs to the drafter, keyed by `seq.id`, and is gone after `end`."""

    @property
    def needs(self) -> Needs:
        """What it needs of the target's passes."""

    @property
    def traits(self) -> Traits:
        """What it can do besides; `Traits()` for nothing."""

    def begin(self, seqs: Seq[Sequence]) -> None:
        """New sequences, before their prompts are read."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence, whose node 0 is `seq.pending`. A budget of depth 0 gets node 0 alone."""

    def observe(self, seen: Seq[Seen]) -> None:
        """Take what the pass showed: committed rows, taps and the verdict."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """These sequences are over (finished or cancelled)."""


def inner(drafter: Drafter) -> Iterator[Drafter]:
    """The drafter, then all that it asks, at any depth."""
    yield drafter
    for one in drafter.traits.inner:
        yield from inner(one)


def forget(drafter: Drafter) -> None:
    """Have all drop what they learned from requests that are over."""
    for one in inner(drafter):
        if one.traits.forget is not None:
            one.traits.forget()


def may_leave(drafter: Drafter) -> bool:
    """Whether passes keep hidden states for it that a text can do without: it asks no other drafters, and its network
    is not to be replaced, for then it learns from the texts that it hears."""
    return bool(drafter.needs.taps) and not ((own := drafter.traits).inner or own.adopt or own.ahead)


def arm_of(drafter: Drafter, name: str) -> Arm:
    """The drafter as a policy sees it."""
    traits = drafter.traits
    return Arm(
        name=name,
        peek=(lambda seq, budget: drafter.propose([seq], [budget])[0]) if traits.peeks else None,
        home=traits.home,
        ends_early=traits.ends_early,
        one_pass=traits.one_pass,
        hands_states=traits.hands_states,
        foretells=traits.foretells,
        shape=traits.shape,
        listens=may_leave(drafter),
    )
