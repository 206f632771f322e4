"""SSD: while the target judges, prepare the next guess for several outcomes; on a hit it is ready at once.

Kumar et al., "Speculative speculative decoding", 2026, https://arxiv.org/abs/2603.03251 (Saguaro).

    under judgement   d1 d2 d3          an outcome: so many accepted, then this token
    outcomes          d1 d2 d3 e1       all accepted, then the draft's own next token; or its second, third guess
                      d1 d2 x           a rejection where the draft had another guess x in mind
    prepared          outcome -> chain

How many tokens are prepared for behind how many accepted ones is the paper's fan-out (docs/methods/ssd.md). They are
the likeliest ones by the draft's distribution, or the inner drafter's other guesses where it has none. On a miss a
short chain is drafted while the target waits (the back-up). Saguaro's sampling bends the distribution that a chain is
drawn from: less mass on the tokens that would be prepared for, so that a rejection puts one of those in the place of
what was rejected. Data in: sequences and an inner drafter; data out: chains.
"""

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any

from torch import Tensor

from outdraft.core.draft import Continuation, Draft
from outdraft.core.drafter import Drafter, Seen, Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.drafters.shared.composed.ahead import AheadGuess, build_rewinding, first_path, imagine
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CacheFullError
from outdraft.options.ranges import check_range


def rank_outcomes(acceptance: float, decay: float, available: Seq[int], count: int) -> list[tuple[int, int]]:
    """The best `count` pairs (k, rank from 1), best first, with ranks up to `available[k]`, k = 0 .. K.

    With the acceptance rate a, k of K tokens are accepted with a chance of a^k (1 - a), all of them with a^K; that the
    token after them is none of the F likeliest has a chance of about F^-decay.
    """
    longest = len(available) - 1
    chances = [acceptance**k * (1 - acceptance if k < longest else 1) for k in range(longest + 1)]
    best = [(-chances[k], k, 1) for k, most in enumerate(available) if most]
    heapify(best)
    chosen: list[tuple[int, int]] = []
    while best and len(chosen) < count:
        _, k, rank = heappop(best)
        chosen.append((k, rank))
        if rank < available[k]:
            heappush(best, (-chances[k] * (rank + 1) ** -(1 + decay), k, rank + 1))
    return chosen


def fan_outs(acceptance: float, decay: float, depth: int, count: int) -> list[int]:
    """F_0 .. F_depth with the sum `count`."""
    chosen = rank_outcomes(acceptance, decay, [count] * (depth + 1), count)
    return [sum(k == place for k, _ in chosen) for place in range(depth + 1)]


Outcome = tuple[int, ...]  # the tokens that the target will have written


_PRIOR = (4, 1)  # tokens accepted, and rejected, that a request is taken to have seen before its first


@dataclass(frozen=True, slots=True, kw_only=True)
class SsdOptions:
    """Who drafts, and for how many outcomes. Raises `ConfigError` naming what is out of range."""

    # the drafter: a name, or {"method": NAME, OPTION: VALUE}; its second choices are the outcomes that are prepared
    # for
    drafter: str | Mapping[str, Any] = field(default_factory=lambda: {"method": "draft_model", "width": 2})
    # for how many outcomes of the pass a next guess is prepared, at most; in the paper (k + 1) times the mean fan-out
    outcomes: int = 6
    # the exponent r: the chance that a token is none of the F most probable ones is taken to fall as F^-r
    decay: float = 1.0
    # how many tokens are drafted when no prepared guess fits; none takes as many as the budget allows
    backup: int | None = None
    # the factor C on the most probable tokens of the distribution that is drawn from; 1 leaves it as it is
    saguaro: float = 1.0

    def __post_init__(self) -> None:
        check_range(self, "outcomes", least=1, most=1024)
        check_range(self, "decay", least=0)
        check_range(self, "backup", least=0, note="0 waits for the next pass")
        check_range(self, "saguaro", least=0, most=1, note="1 leaves the distribution as it is")


@dataclass(slots=True)
class _Round:
    """One sequence's guess under judgement, and what is prepared behind it."""

    length: int = 0  # of the text
    guess: AheadGuess = field(default_factory=AheadGuess)
    budget: Budget = field(default_factory=lambda: Budget(depth=0))
    # with its rank among those of its length
    prepared: dict[Outcome, tuple[int, AheadGuess]] = field(default_factory=dict)
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
        """It works beside the pass. Made anew: kept, they would hold what holds them, and the inner one's weights."""
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
            rank, ready = last.prepared.get(tuple(seq.tokens[last.length :]), (0, AheadGuess()))
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

    def _back_up(self, missed: Seq[tuple[Sequence, Budget]]) -> list[AheadGuess]:
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
        waiting: list[tuple[Sequence, deque[tuple[int, Outcome]]]] = []
        for seq, after in zip(live, self._tokens_after([(seq, paths[seq.id]) for seq in live]), strict=True):
            if after:  # else there is no room
                waiting.append((seq, deque(self._outcomes(self._rounds[seq.id], paths[seq.id], after))))
        while waiting:
            asked = [(seq, *outcomes.popleft()) for seq, outcomes in waiting]
            texts = [imagine(seq, outcome) for seq, _, outcome in asked]
            budgets = [replace(self._rounds[seq.id].budget, nodes=None) for seq, _, _ in asked]
            for (seq, rank, outcome), guess in zip(asked, self._guess(texts, budgets), strict=True):
                if guess.tokens:  # else there is no room behind that outcome
                    self._rounds[seq.id].prepared[outcome] = rank, guess
            if is_over():
                break
            waiting = [(seq, outcomes) for seq, outcomes in waiting if outcomes]
        return [None] * len(seqs)

    def _outcomes(self, now: _Round, path: list[int], after: list[int]) -> list[tuple[int, Outcome]]:
        """What to prepare for, and its rank: all of `path` and the likeliest token `after` it, then the others."""
        candidates = [*now.guess.others[: len(path)], after]
        available = [len(tokens) for tokens in candidates]
        chosen = rank_outcomes(now.acceptance, self._options.decay, available, self._options.outcomes)
        whole = (len(path), 1)
        others = [pair for pair in chosen if pair != whole][: self._options.outcomes - 1]
        return [(rank, (*path[:k], candidates[k][rank - 1])) for k, rank in [whole, *others]]

    def _tokens_after(self, asked: Seq[tuple[Sequence, Seq[int]]]) -> list[list[int]]:
        """The tokens to prepare for behind each path, likeliest first; none where there is no room.

        They only name an outcome, and no rule judges them: no cutoff of the budget ends the guess at them.
        """
        texts = [imagine(seq, path) for seq, path in asked]
        budgets = [
            replace(self._rounds[seq.id].budget, depth=1, nodes=None, confidence=0.0, survival=0.0) for seq in texts
        ]
        drafts = self.inner.propose(texts, budgets) if texts else []
        found = []
        for seq, guess in zip(texts, map(first_path, drafts), strict=True):
            if _is_drawn(seq) and guess.distributions:
                now = self._rounds[seq.id]
                found.append(_likeliest(guess.distributions[0], 1 + self._fan_out(now, now.budget.depth)))
            else:
                found.append([*guess.tokens, *(other for others in guess.others for other in others)])
        return found

    def _guess(self, texts: Seq[Sequence], budgets: Seq[Budget]) -> list[AheadGuess]:
        """A chain behind each text."""
        made = [AheadGuess() for _ in texts]
        drawn = [i for i, seq in enumerate(texts) if _is_drawn(seq)]
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
            try:
                drafts = self.inner.propose(so_far, [replace(budgets[i], depth=1) for i in drawn]) if drawn else []
            except CacheFullError:
                if not depth:
                    raise
                break  # the tokens that were drawn stay
            for i, draft in zip(drawn, drafts, strict=True):
                made[i].extend(self._redraw(texts[i], first_path(draft), depth))
        return made

    def _redraw(self, root: Sequence, guess: AheadGuess, depth: int) -> AheadGuess:
        """Another token for the one of `guess`, drawn from its distribution bent at the tokens to prepare for there."""
        if not guess.distributions:
            return guess
        distribution, count = guess.distributions[0], self._fan_out(self._rounds[root.id], depth)
        likeliest = _likeliest(distribution, 1 + count)
        distribution = bend(distribution, likeliest[:count], self._options.saguaro)
        token = root.draft_coins(root).draw(distribution, depth, depth)[0]
        others = [other for other in likeliest if other != token]
        return AheadGuess([token], [distribution], [others], [float(distribution[token])])

    def _fan_out(self, now: _Round, place: int) -> int:
        """How many tokens to prepare for after so many accepted ones."""
        return fan_outs(now.acceptance, self._options.decay, now.budget.depth, self._options.outcomes)[place]

    def observe(self, seen: Seq[Seen]) -> None:
        """How often a token is accepted, which says where to prepare."""
        for one in seen:
            if one.verdict is not None and one.draft is not None and one.draft.num_nodes > 1:
                now = self._rounds[one.seq.id]
                now.accepted += len(one.verdict.path)
                now.rejected += not one.verdict.bonus

    def end(self, seqs: Seq[Sequence]) -> None:
        self.inner.end(seqs)
        for seq in seqs:
            self._rounds.pop(seq.id, None)


def _is_drawn(seq: Sequence) -> bool:
    """Whether a guess for it is drawn by coins that are not the target's."""
    return not seq.coupled and not seq.request.params.greedy


def _likeliest(distribution: Tensor, count: int) -> list[int]:
    """At most `count` indices of a distribution [V] that are not impossible, likeliest first."""
    best = distribution.topk(min(count, distribution.shape[0]))
    found: list[int] = best.indices[best.values > 0].tolist()
    return found


def bend(distribution: Tensor, top: list[int], factor: float) -> Tensor:
    """The distribution [V] with its entries `top` times `factor`, a distribution again; as it was if that leaves
    nothing."""
    if factor == 1:
        return distribution
    bent = distribution.clone()
    bent[top] *= factor
    mass = bent.sum()
    return bent / mass if mass > 0 else distribution


METHOD: DrafterMethod[SsdOptions, TargetPort, SsdDrafter] = DrafterMethod(
    name="ssd",
    summary="prepares the next guess for several outcomes of the pass under way",
    build=lambda options, port: SsdDrafter(options, build_rewinding(options.drafter, port, "ssd")),
    options=SsdOptions,
    paper=arxiv("2603.03251", "Speculative speculative decoding"),
)
