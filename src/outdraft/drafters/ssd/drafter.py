"""While the target judges, prepare the next guess for several outcomes; on a hit it is ready at once.

Kumar et al., "Speculative speculative decoding", 2026, https://arxiv.org/abs/2603.03251 (Saguaro).

    under judgement   d1 d2 d3          an outcome: so many accepted, then this token
    outcomes          d1 d2 d3 e1       all accepted, then the draft's own next token; or its second, third guess
                      d1 d2 x           a rejection where the draft had another guess x in mind
    prepared          outcome -> chain

How many tokens are prepared for after k accepted ones falls geometrically with k (`ssd/fan_out.py`): the likeliest ones
by the draft's distribution, or the inner drafter's other guesses where it has none. On a miss a short chain is drafted
while the target waits (the back-up). Saguaro's sampling bends the distribution that a chain is drawn from: less mass on
the tokens that would be prepared for, so that a rejection puts one of those in the place of what was rejected. Data in:
sequences and an inner drafter; data out: chains.
"""

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from outdraft.core.draft import Continuation, Draft
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.ranges import check_range
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.drafters.shared.composed.ahead import Guess, build_rewinding, first_path, imagine
from outdraft.drafters.ssd.fan_out import fan_outs, rank_outcomes
from outdraft.models.port import TargetPort

Outcome = tuple[int, ...]  # the tokens that the target will have written


_PRIOR = (4, 1)  # tokens accepted, and rejected, that a request is taken to have seen before its first


def _two_wide() -> dict[str, Any]:
    return {"method": "draft_model", "width": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SsdOptions:
    """Who drafts, and for how many outcomes. Raises `ConfigError` naming what is out of range."""

    drafter: str | Mapping[str, Any] = field(
        default_factory=_two_wide
    )  # its other guesses are what greedy and seeded requests prepare for
    outcomes: int = 6  # prepared in a round, at most: (k + 1) times the mean fan-out
    decay: float = 1.0  # r: the chance that a token is none of the F likeliest falls as F^-r
    backup: int | None = None  # draft tokens after a miss; None: as many as the budget allows
    saguaro: float = 1.0  # C, the factor on the likeliest tokens of the distribution that is drawn from; 1: unbent

    def __post_init__(self) -> None:
        check_range(self, "outcomes", least=1, most=1024)
        check_range(self, "decay", least=0)
        check_range(self, "backup", least=0, note="0 waits for the next pass")
        check_range(self, "saguaro", least=0, most=1, note="1 leaves the distribution as it is")


@dataclass(slots=True)
class _Round:
    """One sequence's guess under judgement, and what is prepared behind it."""

    length: int = 0  # of the text
    guess: Guess = field(default_factory=Guess)
    budget: Budget = field(default_factory=lambda: Budget(depth=0))
    prepared: dict[Outcome, tuple[int, Guess]] = field(default_factory=dict)  # with its rank among those of its length
    accepted: int = _PRIOR[0]  # tokens, since the request began
    rejected: int = _PRIOR[1]

    @property
    def acceptance(self) -> float:
        """Of a token that was examined."""
        return self.accepted / (self.accepted + self.rejected)


class SsdDrafter:
    """`num_hits` of `num_rounds` proposals were ready; rounds with nothing prepared before them do not count.

    `hits_by_rank[j]`: of these, how often it was the token of rank j + 1 that had been prepared for.
    """

    needs = Needs()

    def __init__(self, options: SsdOptions, inner: Drafter) -> None:
        self.inner = inner
        self.num_hits = self.num_rounds = 0
        self.hits_by_rank = [0] * options.outcomes
        self._options = options
        self._rounds: dict[int, _Round] = {}

    @property
    def traits(self) -> Traits:
        """It works beside the pass."""
        return Traits(ahead=self.ahead, inner=(self.inner,))

    def begin(self, seqs: Seq[Sequence]) -> None:
        """Nothing is prepared, and nothing is known of what will be accepted."""
        self.inner.begin(seqs)
        self._rounds |= {seq.id: _Round() for seq in seqs}

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """The chain that was prepared for what happened, else the back-up."""
        missed: list[tuple[Sequence, Budget]] = []
        for seq, budget in zip(seqs, budgets, strict=True):
            last = self._rounds[seq.id]
            rank, ready = last.prepared.get(tuple(seq.tokens[last.length :]), (0, Guess()))
            self.num_rounds += bool(last.prepared)
            self._rounds[seq.id] = replace(last, length=len(seq.tokens), guess=ready, budget=budget, prepared={})
            if rank:
                self.num_hits += 1
                self.hits_by_rank[rank - 1] += 1
            else:
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

    def ahead(self, seqs: Seq[Sequence], drafts: Seq[Draft], is_over: Callable[[], bool]) -> list[Continuation | None]:
        """Prepare, likeliest outcome first, until there are enough or the pass is over."""
        paths = {
            seq.id: self._rounds[seq.id].guess.tokens[: draft.num_nodes - 1]
            for seq, draft in zip(seqs, drafts, strict=True)
        }
        live = [seq for seq in seqs if self._rounds[seq.id].budget.depth]
        ends = self._ask([(seq, tuple(paths[seq.id])) for seq in live], more=1)
        waiting: list[tuple[Sequence, deque[tuple[int, Outcome]]]] = []
        for seq, end in zip(live, ends, strict=True):
            if end.tokens:  # else there is no room
                now, path = self._rounds[seq.id], paths[seq.id]
                waiting.append((seq, deque(self._outcomes(now, path, end))))
                first = end.tokens[0]
                end.drop(1)
                now.prepared[(*path, first)] = 1, end
        while waiting := [(seq, outcomes) for seq, outcomes in waiting if outcomes]:
            if is_over():
                break
            asked = [(seq, *outcomes.popleft()) for seq, outcomes in waiting]
            for (seq, rank, outcome), guess in zip(asked, self._ask([(seq, to) for seq, _, to in asked]), strict=True):
                self._rounds[seq.id].prepared[outcome] = rank, guess
        return [None] * len(seqs)

    def _outcomes(self, now: _Round, path: list[int], end: Guess) -> list[tuple[int, Outcome]]:
        """What else to prepare for, and its rank: other tokens than `path` goes on with, and than all of it ends in."""
        candidates = [*now.guess.others[: len(path)], [end.tokens[0], *end.others[0]]]
        available = [len(tokens) for tokens in candidates]
        chosen = rank_outcomes(now.acceptance, self._options.decay, available, self._options.outcomes)
        prepared_already = (len(path), 1)
        if prepared_already not in chosen:
            chosen = chosen[:-1]
        return [(rank, (*path[:k], candidates[k][rank - 1])) for k, rank in chosen if (k, rank) != prepared_already]

    def _ask(self, asked: Seq[tuple[Sequence, Outcome]], more: int = 0) -> list[Guess]:
        """A chain behind each text and what is imagined of its future."""
        budgets = [self._rounds[seq.id].budget for seq, _ in asked]
        budgets = [replace(budget, depth=budget.depth + more, nodes=None) for budget in budgets]
        texts = [imagine(seq, tokens) for seq, tokens in asked]
        return self._guess(texts, budgets, num_keys=more)

    def _guess(self, texts: Seq[Sequence], budgets: Seq[Budget], num_keys: int = 0) -> list[Guess]:
        """A chain behind each text. The first `num_keys` tokens only name an outcome: nobody judges them."""
        made = [Guess() for _ in texts]
        drawn = [i for i, seq in enumerate(texts) if not seq.coupled and not seq.request.params.greedy]
        plain = [i for i in range(len(texts)) if i not in drawn]
        if plain:
            drafts = self.inner.propose([texts[i] for i in plain], [budgets[i] for i in plain])
            for i, draft in zip(plain, drafts, strict=True):
                made[i] = first_path(draft)
        for depth in range(max((budgets[i].depth for i in drawn), default=0)):
            # A token at a time, since what follows depends on the bent draw. Chains that have ended stay as they are.
            drawn = [
                i for i in drawn if len(made[i].tokens) == depth < budgets[i].depth and not made[i].is_cut(budgets[i])
            ]
            so_far = [imagine(texts[i], made[i].tokens) for i in drawn]
            drafts = self.inner.propose(so_far, [replace(budgets[i], depth=1) for i in drawn]) if drawn else []
            for i, draft in zip(drawn, drafts, strict=True):
                place = depth - num_keys if depth >= num_keys else budgets[i].depth - num_keys
                made[i].extend(self._redraw(texts[i], first_path(draft), depth, place, is_key=depth < num_keys))
        return made

    def _redraw(self, root: Sequence, guess: Guess, depth: int, place: int, *, is_key: bool) -> Guess:
        """Another token for the one of `guess`, drawn from its distribution bent at the tokens to prepare for there."""
        if not guess.distributions:
            return guess
        now, options, distribution = self._rounds[root.id], self._options, guess.distributions[0]
        count = fan_outs(now.acceptance, options.decay, now.budget.depth, options.outcomes)[place]
        best = distribution.topk(min(1 + count, distribution.shape[0]))
        likeliest: list[int] = best.indices[best.values > 0].tolist()
        if is_key:
            return Guess(likeliest[:1], [distribution], [likeliest[1:]], [float(best.values[0])])
        distribution = bend(distribution, best.indices[:count], options.saguaro)
        token = root.draft_coins(root).draw(distribution, depth, depth)[0]
        others = [other for other in likeliest if other != token]
        return Guess([token], [distribution], [others], [float(distribution[token])])

    def observe(self, seen: Seq[Seen]) -> None:
        """How often a token is accepted, which says where to prepare."""
        for one in seen:
            if one.verdict is not None and one.draft is not None and one.draft.num_nodes > 1:
                now = self._rounds[one.seq.id]
                now.accepted += len(one.verdict.path)
                now.rejected += not one.verdict.bonus

    def end(self, seqs: Seq[Sequence]) -> None:
        """Forget what was prepared."""
        self.inner.end(seqs)
        for seq in seqs:
            self._rounds.pop(seq.id, None)


def bend(distribution: Tensor, top: Tensor, factor: float) -> Tensor:
    """The distribution [V] with its entries `top` [F] times `factor`, a distribution again; as it was if that leaves
    nothing."""
    if factor == 1:
        return distribution
    bent = distribution.clone()
    bent[top] *= factor
    mass = bent.sum()
    return bent / mass if mass > 0 else distribution


def build(options: SsdOptions, port: TargetPort) -> SsdDrafter:
    """Over the drafter that the options name."""
    return SsdDrafter(options, build_rewinding(options.drafter, port, "ssd"))
