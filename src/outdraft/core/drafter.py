"""The contract of a drafter: four verbs, called by the one loop, and nothing else."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.policy import Arm, Budget
from outdraft.core.registry import Method
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.core.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one sequence's pass showed, told to the drafter after a prompt chunk and after every verification.

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


class Drafter(Protocol):
    """Proposes guesses. State belongs to the drafter, keyed by `seq.id`, and is gone after `end`."""

    needs: Needs

    def begin(self, seqs: Seq[Sequence]) -> None:
        """New sequences, before their prompts are read."""
        ...

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence, whose node 0 is `seq.pending`. A budget of depth 0 gets node 0 alone."""
        ...

    def observe(self, seen: Seq[Seen]) -> None:
        """What the pass showed."""
        ...

    def end(self, seqs: Seq[Sequence]) -> None:
        """These sequences are over (finished or cancelled)."""
        ...


class RunsAhead(Drafter, Protocol):
    """A drafter with a fifth verb: it works while the target judges what it proposed."""

    def ahead(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> None:
        """Guess beyond `drafts`, perhaps in a thread beside the pass; the loop waits for it before it commits.

        `is_over`: whether the pass has ended, so that nothing that could wait should be begun.
        """
        ...


class Remembers(Drafter, Protocol):
    """A drafter that learns from one request for the next; one that holds such a drafter passes the word on."""

    def forget(self) -> None:
        """Drop what earlier requests have left behind; asked between requests."""
        ...


def forget(drafter: Drafter) -> None:
    """Have a drafter forget, if it is one that remembers."""
    getattr(drafter, "forget", lambda: None)()


class Peeks(Drafter, Protocol):
    """A drafter whose guesses cost next to nothing, so that a policy may look at one that nobody uses."""

    peeks: bool  # `propose` looks at the tokens alone, and leaves no trace but what it reads of them


def arm_of(drafter: Drafter, name: str) -> Arm:
    """The drafter as a policy sees it."""
    if not getattr(drafter, "peeks", False):
        return Arm(name=name)
    return Arm(name=name, peek=lambda seq, budget: drafter.propose([seq], [budget])[0])


def arms_of(method: Method, drafter: Drafter) -> tuple[Arm, ...]:
    """Whom a policy may choose among: the drafters that it holds, or itself alone."""
    return method.arms(drafter) or (arm_of(drafter, method.name),)


class Rewinds(Drafter, Protocol):
    """A drafter that others may ask about texts that never come to be."""

    rewinds: bool  # `propose` looks at the tokens alone, and they may go back on those of the last call
