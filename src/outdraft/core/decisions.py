"""What is decided about a pass before anything of it is computed: one frozen record a step.

    scheduler -> turn | policy, request -> budget | drafter, mask -> draft | memory -> as much of it as fits

The pass, the verdicts and the texts follow from it. What goes along with a pass reads it here: a trace
(`engine/trace.py`), a replay (`bench/replay`), and another device that makes the same passes over the same texts. It
knows texts by their numbers and holds no part of the engine, so it can be sent.
"""

from dataclasses import dataclass, replace

from outdraft.core.draft import Draft
from outdraft.core.policy import Budget
from outdraft.core.sequence import Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a pass does with one text."""

    seq_id: int
    start: int  # rows of it that the cache holds
    turn: Turn
    draft: Draft  # the pending token alone where nothing is guessed
    budget: Budget | None = None  # that the drafter was given; None: no drafter was asked
    drafted_by: str = ""  # who made the guess, by name
    draft_version: int = 0  # of the weights that made it (`drafter.Adoption`)
    is_planned: bool = True  # the policy decided about the guess, and not its request, a mask or full memory

    def cut(self, draft: Draft) -> "Decision":
        """With what there is room for. The policy learns nothing from a guess that is shorter for that."""
        is_whole = draft.num_nodes >= self.draft.num_nodes
        return self if is_whole else replace(self, draft=draft, is_planned=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """About all texts of a pass."""

    each: tuple[Decision, ...]  # [B]
    seconds: float = 0.0  # that deciding took
    is_whole: bool = True  # no guess was cut, so drafters may go on behind them during the pass
