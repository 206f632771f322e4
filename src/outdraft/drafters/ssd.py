"""While the target judges, prepare the next guess for several outcomes; on a hit it is ready at once.

Kumar et al., "Speculative speculative decoding", 2026, https://arxiv.org/abs/2603.03251 (Saguaro).

    under judgement   d1 d2 d3          an outcome: so many accepted, then this token
    outcomes          d1 d2 d3 e1       all accepted, then the draft's own next token; or its second, third guess
                      d1 d2 x           a rejection where the draft had another guess x in mind
    prepared          outcome -> chain

The likeliest outcome comes first: all accepted; then, place by place, what the draft also had in mind there. On a miss
a short chain is drafted while the target waits (the back-up). Saguaro's bent q, which makes rejections predictable at
the cost of more of them, is not here. Data in: sequences and an inner drafter with trees; data out: chains.
"""

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import Any

from outdraft.core.draft import Draft
from outdraft.core.drafter import Rewinds, Seen
from outdraft.core.errors import ConfigError
from outdraft.core.policy import Budget
from outdraft.core.registry import Method, Paper
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs, TargetPort
from outdraft.drafters.shared.ahead import Guess, build_rewinding, first_path, imagine

Outcome = tuple[int, ...]  # the tokens that the target will have written


def _two_wide() -> dict[str, Any]:
    return {"method": "draft_model", "width": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SsdOptions:
    """Who drafts, and for how many outcomes. Raises `ConfigError` naming what is out of range."""

    drafter: str | Mapping[str, Any] = field(
        default_factory=_two_wide
    )  # its other guesses are the outcomes prepared for
    outcomes: int = 6  # prepared in a round, at most
    backup: int | None = None  # draft tokens after a miss; None: as many as the budget allows

    def __post_init__(self) -> None:
        if self.outcomes < 1:
            raise ConfigError(f"outcomes={self.outcomes}: must be at least 1")
        if self.backup is not None and self.backup < 0:
            raise ConfigError(f"backup={self.backup}: must be at least 0 (0 waits for the next pass)")


@dataclass(slots=True)
class _Round:
    """One sequence's guess under judgement, and what is prepared behind it."""

    length: int = 0  # of the text
    guess: Guess = field(default_factory=Guess)
    budget: Budget = field(default_factory=lambda: Budget(depth=0))
    prepared: dict[Outcome, Guess] = field(default_factory=dict)


class SsdDrafter:
    """`num_hits` of `num_rounds` proposals were ready; rounds with nothing prepared before them do not count."""

    needs = Needs()

    def __init__(self, options: SsdOptions, inner: Rewinds) -> None:
        self.inner = inner
        self.num_hits = self.num_rounds = 0
        self._options = options
        self._rounds: dict[int, _Round] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing is prepared."""
        self.inner.begin(seqs)
        self._rounds |= {seq.id: _Round() for seq in seqs}

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """The chain that was prepared for what happened, else the back-up."""
        missed: list[tuple[Sequence, Budget]] = []
        for seq, budget in zip(seqs, budgets, strict=True):
            last = self._rounds[seq.id]
            ready = last.prepared.get(tuple(seq.tokens[last.length :]))
            self.num_rounds += bool(last.prepared)
            self.num_hits += ready is not None
            self._rounds[seq.id] = _Round(length=len(seq.tokens), guess=ready or Guess(), budget=budget)
            if ready is None:
                missed.append((seq, budget))
        if missed:
            for (seq, _), draft in zip(missed, self._back_up(missed), strict=True):
                self._rounds[seq.id].guess = first_path(draft)
        return [
            self._rounds[seq.id].guess.draft(seq.pending, budget) for seq, budget in zip(seqs, budgets, strict=True)
        ]

    def _back_up(self, missed: Seq[tuple[Sequence, Budget]]) -> list[Draft]:
        limit = self._options.backup
        budgets = [
            replace(budget, depth=budget.depth if limit is None else min(limit, budget.depth), nodes=None)
            for _, budget in missed
        ]
        return self.inner.propose([seq for seq, _ in missed], budgets)

    def ahead(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> None:
        """Prepare, likeliest outcome first, until there are enough or the pass is over."""
        paths = {
            seq.id: self._rounds[seq.id].guess.tokens[: draft.num_nodes - 1]
            for seq, draft in zip(seqs, drafts, strict=True)
        }
        live = [seq for seq in seqs if self._rounds[seq.id].budget.depth]
        ends = self._ask([(seq, tuple(paths[seq.id])) for seq in live], more=1)
        waiting: list[tuple[Sequence, deque[Outcome]]] = []
        for seq, end in zip(live, ends, strict=True):
            if end.tokens:  # else there is no room
                now, path = self._rounds[seq.id], paths[seq.id]
                waiting.append((seq, deque(self._outcomes(path, now.guess, end))))
                first = end.tokens[0]
                end.drop(1)
                now.prepared[(*path, first)] = end
        while waiting := [(seq, outcomes) for seq, outcomes in waiting if outcomes]:
            if is_over():
                return
            asked = [(seq, outcomes.popleft()) for seq, outcomes in waiting]
            for (seq, outcome), guess in zip(asked, self._ask(asked), strict=True):
                self._rounds[seq.id].prepared[outcome] = guess

    def _outcomes(self, path: list[int], judged: Guess, end: Guess) -> list[Outcome]:
        """Besides the likeliest one: other tokens after all of `path`, then instead of each of its tokens."""
        outcomes = [(*path, token) for token in end.others[0]]
        for place, others in enumerate(judged.others[: len(path)]):
            outcomes += [(*path[:place], token) for token in others]
        return outcomes[: self._options.outcomes - 1]

    def _ask(self, asked: Seq[tuple[Sequence, Outcome]], more: int = 0) -> list[Guess]:
        """A chain behind each text and what is imagined of its future."""
        budgets = [self._rounds[seq.id].budget for seq, _ in asked]
        budgets = [replace(budget, depth=budget.depth + more, nodes=None) for budget in budgets]
        texts = [imagine(seq, tokens) for seq, tokens in asked]
        return [first_path(draft) for draft in self.inner.propose(texts, budgets)] if texts else []

    def observe(self, seen: Seq[Seen]) -> None:
        """The texts say it all."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Forget what was prepared."""
        self.inner.end(seqs)
        for seq in seqs:
            self._rounds.pop(seq.id, None)


def build(options: SsdOptions, port: TargetPort) -> SsdDrafter:
    """Over the drafter that the options name."""
    return SsdDrafter(options, build_rewinding(options.drafter, port, "ssd"))


METHOD = Method(
    name="ssd",
    kind="drafter",
    summary="prepares the next guess for several outcomes of the pass under way",
    build=build,
    options=SsdOptions,
    paper=Paper(title="Speculative speculative decoding", year=2026, link="https://arxiv.org/abs/2603.03251"),
)
