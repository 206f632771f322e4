"""While the target judges, prepare the next guess for several outcomes; on a hit it is ready at once.

Kumar et al., "Speculative speculative decoding", 2026, https://arxiv.org/abs/2603.03251 (Saguaro).

    under judgement   d1 d2 d3          an outcome: so many accepted, then this token
    outcomes          d1 d2 d3 e1       all accepted, then the draft's own next token; or its second, third guess
                      d1 d2 x           a rejection where the draft had another guess x in mind
    prepared          outcome -> chain

The likeliest outcome comes first: all accepted; then, place by place, what the draft also had in mind there. On a miss
a short chain is drafted while the target waits (the back-up). Saguaro's sampling bends the law that a chain is drawn
from: less mass on its likeliest tokens, so that a rejection puts one of those in the place of what was rejected. Data
in: sequences and an inner drafter with trees; data out: chains.
"""

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Rewinds, Seen
from outdraft.core.policy import Budget
from outdraft.core.ranges import check_range
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
    saguaro: float = 1.0  # C, the factor on the likeliest tokens of the law that is drawn from; 1: unbent

    def __post_init__(self) -> None:
        check_range(self, "outcomes", least=1)
        check_range(self, "backup", least=0, note="0 waits for the next pass")
        check_range(self, "saguaro", least=0, most=1, note="1 leaves the law as it is")


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
            for (seq, _), guess in zip(missed, self._back_up(missed), strict=True):
                self._rounds[seq.id].guess = guess
        return [
            self._rounds[seq.id].guess.draft(seq.pending, budget) for seq, budget in zip(seqs, budgets, strict=True)
        ]

    def _back_up(self, missed: Seq[tuple[Sequence, Budget]]) -> list[Guess]:
        limit = self._options.backup
        budgets = [
            replace(budget, depth=budget.depth if limit is None else min(limit, budget.depth), nodes=None)
            for _, budget in missed
        ]
        return self._guess([seq for seq, _ in missed], budgets)

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
        return self._guess(texts, budgets, num_keys=more)

    def _guess(self, texts: Seq[Sequence], budgets: Seq[Budget], num_keys: int = 0) -> list[Guess]:
        """A chain behind each text. The first `num_keys` tokens only name an outcome: nobody judges them."""
        made = [Guess() for _ in texts]
        bent = [i for i, seq in enumerate(texts) if self._bends(seq)]
        plain = [i for i in range(len(texts)) if i not in bent]
        if plain:
            drafts = self.inner.propose([texts[i] for i in plain], [budgets[i] for i in plain])
            for i, draft in zip(plain, drafts, strict=True):
                made[i] = first_path(draft)
        for depth in range(max((budgets[i].depth for i in bent), default=0)):
            # A token at a time, since what follows depends on the bent draw. Chains that have ended stay as they are.
            bent = [i for i in bent if len(made[i].tokens) == depth < budgets[i].depth]
            so_far = [imagine(texts[i], made[i].tokens) for i in bent]
            drafts = self.inner.propose(so_far, [replace(budgets[i], depth=1) for i in bent]) if bent else []
            for i, draft in zip(bent, drafts, strict=True):
                made[i].extend(self._redraw(texts[i], first_path(draft), depth, is_key=depth < num_keys))
        return made

    def _bends(self, seq: Sequence) -> bool:
        """A deterministic guess has no law, and one that shares the target's noise agrees best as it is."""
        return self._options.saguaro < 1 and not seq.coupled and not seq.request.params.greedy

    def _redraw(self, root: Sequence, guess: Guess, depth: int, *, is_key: bool) -> Guess:
        """Another token for the one of `guess`, drawn from its law bent at as many tokens as the drafter thought of."""
        if not guess.laws:
            return guess
        law = guess.laws[0]
        top = law.topk(min(1 + len(guess.others[0]), law.shape[0])).indices
        likeliest: list[int] = top.tolist()
        law = bend(law, top, self._options.saguaro)
        token = likeliest[0] if is_key else root.draft_coins(root).draw(law, depth, depth)[0]
        return Guess([token], [law], [[other for other in likeliest if other != token]])

    def observe(self, seen: Seq[Seen]) -> None:
        """The texts say it all."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """Forget what was prepared."""
        self.inner.end(seqs)
        for seq in seqs:
            self._rounds.pop(seq.id, None)


def bend(law: Tensor, top: Tensor, factor: float) -> Tensor:
    """The law [V] with its entries `top` [F] times `factor`, a law again; as it was if that leaves nothing."""
    bent = law.clone()
    bent[top] *= factor
    mass = bent.sum()
    return bent / mass if mass > 0 else law


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
