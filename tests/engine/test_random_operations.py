"""The whole engine under random operations: requests join, leave, step, give back memory and take over rows.

    add, step, cancel, forget, end    after each: every cache is whole, every request in one place, every page known
                                      at last: every text is plain decoding's, a cancelled one its true beginning

The target is audited, so each pass and each commit is checked against the contract too.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from contracts.sides import smaller_model, twin
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lab.own_caches import own_caches
from outdraft.cache.config import CacheConfig
from outdraft.cache.paged import PagedCache
from outdraft.core.cache import PAGE
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.options.params import SamplingParams
from outdraft.testing.contract.reuse import runner_of
from outdraft.testing.in_slices import in_slices
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject
from outdraft.verify.auto import Auto

ROWS = {
    "none": DrafterRow(drafter="none"),
    "ngram": DrafterRow(drafter="ngram"),
    "draft_model": DrafterRow(drafter="draft_model", side=smaller_model),
    "tree": DrafterRow(drafter="draft_model", side=twin, options={"width": 2}),
}
STEMS = ((5, 6, 7, 8) * 10, tuple(range(10, 50)))
KNOWN: dict = {}  # logits behind each text: the four draft for one target
QUICK = settings(max_examples=8, stateful_step_count=14, deadline=None, phases=[Phase.generate])


@st.composite
def requests(draw):
    """A prompt and its answer fit into four pages."""
    stem, length = draw(st.sampled_from(STEMS)), draw(st.sampled_from([2, 22, 36, 36]))
    other = draw(st.lists(st.integers(0, 60), max_size=3))
    seed = draw(st.sampled_from([None, 3, 4]))
    params = SamplingParams(
        max_tokens=draw(st.sampled_from([3, 20, 28, 28])), temperature=0.0 if seed is None else 1.0, seed=seed
    )
    return Request(
        prompt_token_ids=(*stem[: max(1, length - len(other))], *other),
        params=params,
        priority=draw(st.integers(0, 2)),
        cache_salt=draw(st.sampled_from([None, "b"])),
        num_speculative_tokens=draw(st.sampled_from([None, None, 0, 7])),
    )


REQUESTS = requests()


@cache
def subject_of(name: str) -> Subject:
    made = Subject(ROWS[name], Path(mkdtemp()))
    made._known = KNOWN
    return made


@dataclass
class Asked:
    seq: Sequence
    wanted: list[int]
    cancelled: bool = False


class SliceCount:
    """A listener of the engine's: slices after which their pass is not over."""

    def __init__(self):
        self.num = 0

    def passed(self, decisions, events, now, seconds):
        self.num += not events

    def asked(self, seq, now):
        """It waits."""

    refused = ended = asked


class Machine(RuleBasedStateMachine):
    drafter = "none"
    seen: Counter[str]

    @initialize(
        pages=st.integers(4, 5),
        shares=st.sampled_from([True, True, False]),
        seats=st.integers(1, 4),
        slices=st.sampled_from([True, True, False]),
    )
    def begin(self, pages, shares, seats, slices):
        self.subject, self.num_pages = subject_of(self.drafter), pages
        self.engine = self.subject.engine(
            cache=CacheConfig(layout="paged", num_pages=pages, prefixes=shares, poison=True),
            scheduling=SchedulerSettings(max_num_seqs=seats, max_num_batched_tokens=20),
            verifier=Auto(),
        )
        self.runner = runner_of(self.engine)
        if shares:  # as native kernels do; in float64 reading in other pieces changes no id
            self.runner.shared.unit = self.runner.shared.worth = PAGE
            self.engine.parts.room.mixes = True
        self.unfinished = SliceCount()
        self.engine.watch.add(self.unfinished)
        self.slicing = in_slices(shares and slices)
        self.slicing.__enter__()
        if shares and slices:
            self.engine.parts.room.slices = self.runner.num_layers
        rows = self.runner.cache
        self.caches: list[PagedCache] = [rows, *own_caches(self.engine.parts.drafter, rows)]
        assert len(self.caches) == len(self.runner.cache_config.pool.forgets)
        self.asked: list[Asked] = []

    @precondition(lambda self: len(self.asked) < 12)
    @rule(crowd=st.lists(REQUESTS, min_size=2, max_size=4))
    def add(self, crowd):
        """Prompts share beginnings; some are the same text as one that runs."""
        for request in crowd:
            wanted = self.subject.oracle(request)
            self.asked.append(Asked(seq=self.engine.add(request), wanted=wanted))

    @precondition(lambda self: self.engine.has_work)
    @rule(times=st.integers(1, 6))
    def step(self, times):
        for _ in range(times):
            if not self.engine.has_work:
                return
            ran, held = list(self.engine.running), self.progress()
            waited = [(seq, seq.num_preempted) for seq in self.engine.waiting]
            self.engine.step()
            rank = self.engine.waiting.rank
            gave_back = [rank(seq) for seq in ran if any(seq is one for one in self.engine.waiting)]
            stayed = [rank(seq) for seq in self.engine.running]
            assert not gave_back or not stayed or min(gave_back) > max(stayed), "an earlier request gave way to a later"
            assert self.progress() != held, "a step in which nothing happened"
            in_vain = [seq.id for seq, times in waited if seq.num_preempted > times]
            assert not in_vain, f"{in_vain} joined and had to give way in the same step: there was no room for them"

    def progress(self):
        seqs = [one.seq for one in self.asked]
        return self.unfinished.num, [(len(seq.tokens), seq.num_cached, seq.num_preempted) for seq in seqs]

    @precondition(lambda self: self.engine.has_work)
    @rule(data=st.data())
    def cancel(self, data):
        going = [one for one in self.asked if one.seq.finish_reason is None]
        one = data.draw(st.sampled_from(going))
        self.engine.cancel(one.seq)
        one.cancelled = True

    @rule()
    def forget(self):
        self.engine.parts.room.forget()
        assert not any(one.store.num_kept for one in self.caches)

    @precondition(lambda self: self.engine.has_work)
    @rule()
    def end_all(self):
        for _ in range(60 * len(self.asked)):
            if not self.engine.has_work:
                break
            self.step(1)
            self.everything_has_one_place()
        assert not self.engine.has_work, f"{len(self.engine.waiting)} requests never got room"

    @invariant()
    def everything_has_one_place(self):
        running, waiting = list(self.engine.running), list(self.engine.waiting)
        going = [one.seq.id for one in self.asked if one.seq.finish_reason is None]
        assert sorted(seq.id for seq in (*running, *waiting)) == going
        rank = self.engine.waiting.rank
        assert waiting == sorted(waiting, key=rank) and len(running) <= self.engine.scheduler.settings.max_num_seqs
        assert not any(seq.num_cached for seq in waiting)
        assert sorted(self.engine.parts.target.cached) == sorted(seq.id for seq in running)

    @invariant()
    def every_page_is_accounted_for(self):
        for one in self.caches:
            one.check()
        rows = self.runner.cache
        assert all(rows.length(seq.id) == seq.num_cached for seq in self.engine.running)
        held = {page for seq in self.engine.running for page in rows.pages(seq.id)}
        assert self.engine.parts.room.free == self.num_pages - len(held)

    @invariant()
    def what_is_written_is_the_beginning(self):
        for one in self.asked:
            over = one.seq.finish_reason is not None and not one.cancelled
            assert one.seq.output == (one.wanted if over else one.wanted[: one.seq.num_output])
            assert (one.seq.finish_reason == "cancelled") == one.cancelled

    @invariant()
    def rows_are_taken_over_within_a_salt(self):
        for one in self.asked:
            taken, salt = one.seq.tokens[: one.seq.num_taken_over], one.seq.request.cache_salt
            others = [other.seq for other in self.asked if other is not one or one.seq.num_preempted]
            same = [seq for seq in others if seq.request.cache_salt == salt and seq.tokens[: len(taken)] == taken]
            assert not taken or same, f"{len(taken)} rows that no text of salt {salt!r} wrote were taken over"

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        try:
            self.end()
        finally:
            self.slicing.__exit__(None, None, None)

    def end(self):
        if self.engine.has_work:
            self.end_all()
        self.everything_has_one_place()
        self.every_page_is_accounted_for()
        self.what_is_written_is_the_beginning()
        self.rows_are_taken_over_within_a_salt()
        self.seen["in slices"] += self.engine.parts.target.num_sliced
        assert all(one.num_free == self.num_pages for one in self.caches)
        self.seen["gave back"] += sum(one.seq.num_preempted for one in self.asked)
        self.seen["took over"] += sum(one.seq.num_taken_over for one in self.asked)
        self.seen["cancelled"] += sum(one.cancelled for one in self.asked)


def test_whatever_happens_every_text_is_plain_decodings():
    seen: Counter[str] = Counter()
    for name in ROWS:
        run_state_machine_as_test(type("Machine", (Machine,), {"drafter": name, "seen": seen}), settings=QUICK)
    assert min(seen[what] for what in ("gave back", "took over", "cancelled", "in slices")) > 0, seen
