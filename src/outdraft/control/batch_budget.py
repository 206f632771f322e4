"""Verify the slots of a batch that are likeliest to be reached: by the drafts' confidences, or by counts.

    drafted    every guess whole: a block costs one pass of the drafter, however many of its slots are verified
    worth      S_i = c_1 c_2 ... c_i           c: calibrated confidence of a slot, where its draft has one
               S_i by position, of this text   counted, where it has none (`shared/acceptance.py`)
    verified   the slots of all texts that pay for their rows in this pass (`shared/admission.py`)
    plain      nothing is drafted while that makes fewer tokens a second than plain decoding (`rests`)

A confidence that was given before its token was drawn (DSpark's head: DeepSeek, 2026, https://arxiv.org/abs/2607.05147)
decides about its own slot. A token's own probability decides about the slots behind it, where the token was drawn: a
drawn token must not be dropped for its value. The first slot that was not verified is learned from all the same: if all
before it were accepted, the target's own token says whether it would have been (`_label`). Data in: sequences, their
drafts and events; data out: one budget each, and how many nodes of each draft are verified.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from operator import mul

from outdraft.control.shared.acceptance import Hazards, TextOutlook
from outdraft.control.shared.admission import admit
from outdraft.control.shared.budgets import allowed
from outdraft.control.shared.costs import ArmDepth, MeasuredCosts
from outdraft.control.shared.reliability import Reliability
from outdraft.core.draft import Draft, host_tree
from outdraft.core.events import StepEvent
from outdraft.core.method import PolicyMethod, arxiv
from outdraft.core.policy import Arm, Budget
from outdraft.core.sequence import Sequence
from outdraft.options.base import PolicyOptions
from outdraft.options.ranges import MOST_NODES, check_range

_KEEP = 0.98  # of what rounds brought, each round
_FIRST = 4  # rounds of each way at the beginning: whole drafts verified, then plain, so that rows have their price
_TRIED = 8  # rounds in which so many texts draft, before it is asked whether that pays
_NONE = (0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBudgetOptions(PolicyOptions):
    """Raises `ConfigError` naming what is out of range."""

    num_speculative_tokens: int = 16  # how many tokens are drafted along the longest path, at most
    memory: int = 2000  # after how many judged tokens a token counts only 1/e in the calibration
    every: int = 8  # how many rounds lie between two fits of the calibration
    # whether nothing is drafted while plain decoding makes more tokens a second; False: drafts in all rounds but the
    # four that show what plain ones cost
    rests: bool = True
    retry: int = 64  # after how many rounds the other of drafting and plain decoding is tried for one

    def __post_init__(self) -> None:
        check_range(self, "num_speculative_tokens", least=0, most=MOST_NODES)
        check_range(self, "memory", least=16)
        check_range(self, "every", least=1)
        check_range(self, "retry", least=2)


@dataclass(frozen=True, slots=True)
class _Cut:
    """What became of one draft."""

    drafted: int
    verified: int
    token: int | None = None  # of the first slot that is not verified, if the target's own token tells about it
    sure: float | None = None  # the draft's confidence in it


class BatchBudgetPolicy:
    """Costs, calibration and hazards are the engine's; how a text does beside that is its own."""

    def __init__(self, options: BatchBudgetOptions, arm: Arm) -> None:
        self._options, self._foretells = options, arm.foretells
        self.costs = MeasuredCosts([arm])
        self.reliability = Reliability(options.memory)
        self.calibration = self.reliability.fit()
        self._hazards = Hazards(options.memory / 8)
        self._texts: dict[int, TextOutlook] = {}
        self._cuts: dict[int, _Cut] = {}  # of the round under way
        self._rounds: dict[int, list[float]] = {}  # by how many texts drafted -> rounds, tokens, seconds: they fade
        self._num_rounds = self._planned = 0  # rounds, texts of the round under way
        self._drafts = True  # in the round under way
        self._least = 0  # slots of each draft that are verified in any case: what is never verified is not learned

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """Whole drafts, or none."""
        limit, self._cuts, self._planned = self._options.num_speculative_tokens, {}, len(seqs)
        self._drafts = self._is_drafting(len(seqs))
        budgets = []
        for seq in seqs:
            depth = allowed(seq, limit) if self._drafts else 0
            budgets.append(Budget(depth=depth, confident=depth > 0, cut=self.cut if depth else None))
        return budgets

    def _is_drafting(self, count: int) -> bool:
        if self._num_rounds < 2 * _FIRST:
            return self._num_rounds < _FIRST
        if not self._options.rests:
            return True
        number, _, _ = self._rounds.get(count, _NONE)
        pays = number < _TRIED or self._rate(count) > self._plain_rate(count)
        is_trial = number >= _TRIED and self._num_rounds % self._options.retry == 0
        self._least = int(is_trial and not pays)
        return pays != is_trial

    def _rate(self, count: int) -> float:
        """Tokens a second of so many texts that draft; 0 before any."""
        _, tokens, seconds = self._rounds.get(count, _NONE)
        return tokens / seconds if seconds else 0.0

    def _plain_rate(self, count: int) -> float:
        """Tokens a second of so many texts without drafts; 0 while the price of rows is not known."""
        return count / self.costs.passes(count) if self._num_rounds >= 2 * _FIRST else 0.0

    def cut(self, seqs: Seq[Sequence], drafts: Seq[Draft]) -> list[int]:
        """How many nodes of each draft are verified. Trees are verified whole."""
        count = max(self._planned, len(seqs))
        known = [self._worth(seq, draft) for seq, draft in zip(seqs, drafts, strict=True)]
        rows = sum(draft.num_nodes - len(own) for draft, own in zip(drafts, known, strict=True))
        rows += count - len(seqs)  # texts without a guess
        rate = max(self._rate(count), self._plain_rate(count))
        kept = admit(known, rows=rows, rate=rate, pass_cost=cache(self.costs.passes), usual=self.reliability.mean)
        kept = [max(one, min(self._least, len(own))) for one, own in zip(kept, known, strict=True)]
        for seq, draft, own, verified in zip(seqs, drafts, known, kept, strict=True):
            drafted, told = len(own), draft.q is None or seq.coupled or seq.request.params.greedy
            if verified == drafted:
                self._cuts[seq.id] = _Cut(drafted, drafted)
                continue
            sure = None if draft.confidence is None else float(draft.confidence[verified + 1])
            token = int(draft.tokens[verified + 1]) if told else None
            self._cuts[seq.id] = _Cut(drafted, verified, token, sure)
        return [draft.num_nodes - len(own) + one for draft, own, one in zip(drafts, known, kept, strict=True)]

    def _worth(self, seq: Sequence, draft: Draft) -> list[float]:
        """Survivals of a chain's slots, each known before its own token where that was drawn."""
        num_slots = draft.num_nodes - 1
        if not num_slots or draft.mask is not None or draft.roles is not None or not host_tree(draft).is_chain:
            return []
        if draft.confidence is None:
            return self._text(seq.id).survivals(num_slots)
        chances = [self.calibration(sure) for sure in draft.confidence[1:].tolist()]
        if draft.q is not None and not self._foretells:
            chances = [self.reliability.mean, *chances[:-1]]
        return list(accumulate(chances, mul))

    def _text(self, seq: int) -> TextOutlook:
        if seq not in self._texts:
            self._texts[seq] = TextOutlook(self._hazards, self._options.memory / 64)
        return self._texts[seq]

    def update(self, events: Seq[StepEvent]) -> None:
        """Learn costs, the tokens that were judged, and the slots behind them."""
        cuts, self._cuts = self._cuts, {}
        chosen = {}
        for event in events:
            cut = cuts.get(event.seq_id) or _Cut(event.draft_depth, event.draft_depth)
            chosen[event.seq_id] = ArmDepth(0, cut.drafted)
            if event.finish_reason is None and cut.drafted:
                self._learn(event, cut)
        seconds = self.costs.add(events, chosen)
        if any(event.num_certain for event in events):
            return  # a pass that reads a prompt shows no costs
        self._num_rounds += 1
        if self._drafts and self._num_rounds > 2 * _FIRST:
            of_round = (1, sum(len(event.tokens) for event in events), seconds)
            known = self._rounds.get(len(events), _NONE)
            self._rounds[len(events)] = [_KEEP * old + new for old, new in zip(known, of_round, strict=True)]
        if self._num_rounds % self._options.every == 0:
            self.calibration = self.reliability.fit()

    def _learn(self, event: StepEvent, cut: _Cut) -> None:
        for i, sure in enumerate(event.confidences):
            self.reliability.add(sure, i < event.num_accepted)
        label = _label(event, cut)
        if label is not None and cut.sure is not None:
            self.reliability.add(cut.sure, label)
        judged = event.draft_depth + (label is not None)
        if judged:
            self._text(event.seq_id).add(judged, event.num_accepted + bool(label))

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self._texts.pop(seq.id, None)
            self._cuts.pop(seq.id, None)
            self.costs.forget(seq.id)


def _label(event: StepEvent, cut: _Cut) -> bool | None:
    """Whether the first slot that was not verified would have been accepted; None where nothing tells.

    Behind a draft that was accepted whole, the target's own token stands in that slot's place. The guess would have
    been accepted if and only if it is that token where the target is greedy, and where its draw is a function of seed
    and position (`coupled`). A deterministic guess x of a sampled text is accepted with chance p(x), which is the
    chance that the target's token is x: the label is unbiased. A guess drawn from q would be accepted with chance
    min(1, p(x) / q(x)), and equals the target's token with p(x) alone: there the token tells nothing (`cut.token`).
    """
    whole = event.num_accepted == event.draft_depth == cut.verified and len(event.tokens) == cut.verified + 1
    return event.tokens[-1] == cut.token if whole and cut.token is not None else None


METHOD = PolicyMethod(
    name="batch_budget",
    summary="verify the drafted slots of a whole batch that are likeliest to be reached, as far as their rows pay",
    build=lambda options, arms: BatchBudgetPolicy(options, arms[0]),
    options=BatchBudgetOptions,
    paper=arxiv("2607.05147", "DSpark"),
)
