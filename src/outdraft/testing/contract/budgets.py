"""Budgets are limits, 0 is plain decoding, and what the events count is what happened."""

from collections.abc import Sequence as Seq
from dataclasses import replace

from outdraft.core.events import Source, StepEvent
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.testing.audit import require
from outdraft.testing.contract.ground import GREEDY, SEEDED, agrees, requests
from outdraft.testing.subject import Outcome, Subject, run


def budget_zero_is_plain(subject: Subject) -> None:
    """A budget of 0, from the policy or from the request, offers nothing and writes the same text."""
    for params in (GREEDY, SEEDED):
        batch = requests(params)
        wanted = [subject.oracle(request) for request in batch]
        told = [replace(request, num_speculative_tokens=0) for request in batch]
        for engine, asked in ((subject.engine(depth=0), batch), (subject.engine(), told)):
            for outcome, ids in zip(run(engine, asked), wanted, strict=True):
                agrees(subject, outcome, ids, "budget 0")
                offered = outcome.stats.num_draft_tokens
                require(offered == 0, f"{subject.row.name} offered {offered} tokens on a budget of 0")


class UnevenPolicy:
    """Another budget for each sequence and round; 0 among them. `depths`: how many there are."""

    def __init__(self, depths: int = 6) -> None:
        self.depths = depths
        self.planned: list[tuple[int, Budget]] = []

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        """Cycle through the depths."""
        budgets = []
        for seq in seqs:
            depth = (seq.id + seq.num_output) % self.depths
            budgets.append(Budget(depth=depth, nodes=None if seq.id % 2 else 2 * depth))
            self.planned.append((seq.id, budgets[-1]))
        return budgets

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence, so nothing is dropped."""

    def update(self, events: Seq[StepEvent]) -> None:
        """Check each round against its plan; a prompt chunk had none."""
        plans = dict(self.planned)
        self.planned.clear()
        for event in events:
            budget = plans.get(event.seq_id, Budget(depth=0))
            deep, many = event.draft_depth, event.num_draft_tokens
            require(deep <= budget.depth, f"a draft of depth {deep} on a budget of {budget.depth}")
            limit = budget.nodes
            require(limit is None or many <= limit, f"a draft of {many} nodes on a budget of {limit}")


def budget_is_respected(subject: Subject) -> None:
    """No draft is deeper than `budget.depth` or more than `budget.nodes` large; budgets may differ in a batch."""
    for params in (GREEDY, SEEDED):
        outcomes = run(subject.engine(policy=UnevenPolicy()), requests(params))
        for outcome in outcomes:
            agrees(subject, outcome, subject.oracle(outcome.seq.request), "uneven budgets")


def counters_add_up(subject: Subject) -> None:
    """What the events say is what happened: tokens, sources, accepted, rejected, prompt rows."""
    for outcome in run(subject.engine(), requests(GREEDY)):
        adds_up(outcome)


def adds_up(outcome: Outcome) -> None:
    """The same of one text."""
    seq, stats = outcome.seq, outcome.stats
    emitted = [token for event in outcome.events for token in event.tokens]
    require(emitted == seq.output, "the events do not spell the output")
    read = sum(event.num_certain for event in outcome.events)
    require(read == seq.prompt_len - 1, f"{read} prompt rows read of a prompt of {seq.prompt_len}")
    for event in outcome.events:
        require(len(event.sources) == len(event.tokens), "one source a token")
        require(len(event.tokens) <= event.num_accepted + 1, "more tokens than accepted ones and the extra one")
        cut = event.finish_reason is not None
        require(cut or len(event.tokens) in (0, event.num_accepted + 1), "a run was cut without a reason")
        inner = event.sources[: event.num_accepted]
        require(all(source is Source.ACCEPTED for source in inner), f"sources {event.sources}")
        require(event.num_accepted <= event.draft_depth <= event.num_draft_tokens, "accepted more than offered")
    require(stats.num_tokens == len(seq.output), "the statistics count other tokens")
    require(sum(stats.first_rejection_histogram) == stats.num_rejections, "rejections do not add up")
