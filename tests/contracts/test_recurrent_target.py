"""A target whose layers cannot trim, under the loop: the same texts with every way to commit, and mutants that fail."""

from functools import partial

import pytest
import torch

from outdraft import LLM
from outdraft.cache.slots import SlotCache
from outdraft.core.draft import Draft, chain
from outdraft.core.policy import Budget
from outdraft.core.registry import find, make_options
from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.decode.parts import Parts
from outdraft.engine.loop import Engine
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.options.params import SamplingParams
from outdraft.testing.audit import AuditedTarget
from outdraft.testing.contract.ends import ends_inside_a_run
from outdraft.testing.contract.identity import (
    alone_equals_batch,
    greedy_equals_reference,
    joins_and_cancels,
    seeded_equals_reference,
)
from outdraft.testing.reference_rule import ConstantPolicy, ReferenceRule
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from tests.helpers.recurrent_target import COMMITS, RecurrentTarget
from tests.helpers.scripted import RandomTreeDrafter, alternating, liar, oracle

LONG = tuple([3, 1, 4, 1, 5, 9, 2, 6] * 4 + [5, 3, 5])  # two pages and three tokens
WAYS = [
    (how, name) for how in COMMITS for name in ("alternating", "ngram", "tree") if (how, name) != ("tokens", "tree")
]


class OverStates(Subject):
    """A subject whose target has recurrent layers; what it reads and says is known once."""

    states: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}  # noqa: RUF012

    def __init__(self, drafter: str = "alternating", target: type[RecurrentTarget] = RecurrentTarget, **options):
        self.row, self.drafter, self.options, self.made = DrafterRow(drafter=drafter), drafter, options, target
        self.plain = RecurrentTarget()
        self.vocab_size = self.plain.vocab_size

    def next_logits(self, tokens):
        """Row by row from the empty state; what is known of a beginning is not read again."""
        key = tuple(tokens)
        if key not in self.states:
            state = self.after(key[:-1]) if len(key) > 1 else torch.zeros_like(self.plain.states.empty)
            self.states[key] = self.plain.read(state, key[-1])[::2]
        return self.states[key][1]

    def after(self, key):
        self.next_logits(key)
        return self.states[key][0]

    def engine(self, *, verifier=None, depth=4, eos=frozenset(), max_len=None, room=None, scheduling=None, **unused):
        target = self.made(max_len=max_len or 256, **self.options)
        parts = Parts(
            target=AuditedTarget(target, lambda seq, cached: self.recheck(target, seq, cached)),
            drafter=self.make_drafter(),
            verifier=verifier or ReferenceRule(),
            policy=ConstantPolicy(Budget(depth=depth)),
            room=room or Unbounded(mixes=True),
        )
        return Engine(parts, eos_token_ids=eos, scheduling=scheduling)

    def make_drafter(self):
        if self.drafter == "tree":
            return RandomTreeDrafter(lambda tokens: self.next_logits(tokens).softmax(-1))
        if self.drafter == "ngram":
            method = find("drafter", "ngram")
            return method.build(make_options(method, {}), None)
        return {"alternating": alternating, "liar": liar, "oracle": oracle}[self.drafter](self.next_logits)

    def recheck(self, target, seq, cached):
        """The state after every commit is, bit by bit, that of the committed tokens read from the beginning."""
        target.states.check()
        assert target.states.length(seq.id) == len(cached)
        assert not cached or torch.equal(target.states.state(seq.id), self.after(tuple(cached))), "another state"


def states_of(engine):
    return engine.parts.target.target.states


GREEDILY = partial(greedy_equals_reference, depths=(1, 3, 8), penalised=(5,))


@pytest.mark.parametrize("check", [GREEDILY, seeded_equals_reference], ids=["greedy", "seeded"])
@pytest.mark.parametrize(("how", "drafter"), WAYS)
def test_the_same_text(how, drafter, check):
    check(OverStates(drafter, commits=how, prefixes=drafter != "alternating"))  # it wants to hear of every row


@pytest.mark.parametrize("check", [alone_equals_batch, joins_and_cancels, ends_inside_a_run], ids=lambda c: c.__name__)
@pytest.mark.parametrize("how", COMMITS)
def test_the_same_text_in_company(how, check):
    check(OverStates(commits=how))


@pytest.mark.parametrize("drafter", ["liar", "oracle"])
@pytest.mark.parametrize("how", COMMITS)
def test_all_rejected_and_all_accepted(how, drafter):
    greedy_equals_reference(OverStates(drafter, commits=how), depths=(4,), penalised=())


def asked(prompt, seed=None, **fields):
    params = SamplingParams(max_tokens=20, temperature=0.0 if seed is None else 1.0, seed=seed)
    return Request(prompt_token_ids=prompt, params=params, **fields)


@pytest.mark.parametrize("how", COMMITS)
@pytest.mark.parametrize("seed", [None, 5])
def test_a_text_begins_from_the_state_of_an_earlier_one(how, seed):
    subject = OverStates("ngram", commits=how, prefixes=True)
    engine = subject.engine()
    taken = []
    written = ()
    asked_for = [(LONG, None), (LONG, None), ("answer", None), (LONG[:20], None), (LONG[:15], None), (LONG[:32], None)]
    for prompt, salt in (*asked_for, (LONG, "b"), (LONG, "b")):
        request = asked((*LONG, *written[:15], 7) if prompt == "answer" else prompt, seed, cache_salt=salt)
        (outcome,) = run(engine, [request])
        assert outcome.seq.output == subject.oracle(request)
        taken.append(outcome.seq.num_taken_over)
        written = written or tuple(outcome.seq.output)
    assert taken == [0, 32, 48, 16, 0, 16, 0, 32]  # all but the pending token's row at most
    assert states_of(engine).num_free == states_of(engine).num_slots


class FewPages(Unbounded):
    """Memory of so many pages, as the rows of a hybrid model's attention layers would take."""

    def __init__(self, num_pages):
        super().__init__(mixes=True)
        self.num_pages, self.capacity, self.engine = num_pages, 16 * num_pages, None

    def held(self, seq):
        return -(-seq.num_cached // 16)

    @property
    def free(self):
        return self.num_pages - sum(map(self.held, self.engine.running))

    def wanted(self, seq):
        return -(-len(seq.tokens) // 16)

    def missing(self, seq, num_rows):
        return -(-(seq.num_cached + num_rows) // 16) - self.held(seq)


@pytest.mark.parametrize("prefixes", [False, True])
@pytest.mark.parametrize("how", COMMITS)
def test_who_gives_its_memory_back_goes_on_with_the_same_text(how, prefixes):
    subject, room = OverStates("ngram", commits=how, prefixes=prefixes, num_slots=9), FewPages(6)
    engine = room.engine = subject.engine(room=room)
    requests = [asked((*LONG[: 10 + i], i), None if i % 2 else i) for i in range(6)]
    outcomes = run(engine, requests)
    assert [outcome.seq.output for outcome in outcomes] == [subject.oracle(request) for request in requests]
    assert sum(outcome.seq.num_preempted for outcome in outcomes) > 0
    assert states_of(engine).num_free == 9


def test_what_a_commit_costs():
    """20 tokens of which each pass drafts 4 and half are accepted: numbers kept a pass, rows read for all of it."""
    kept, read = {}, {}
    for how in COMMITS:
        engine = OverStates(commits=how).engine()
        run(engine, [asked((5, 6, 7))])
        target = engine.parts.target.target
        kept[how], read[how] = target.num_kept / target.num_passes, target.num_read
    layers, width = target.maps.shape[:2]
    assert kept["tokens"] == layers * width**2
    assert kept["states"] / kept["inputs"] == pytest.approx(width**2 / (2 * width + 1))
    assert read["inputs"] == read["states"] < read["tokens"]


class OneTooEarly(RecurrentTarget):
    """A commit that forgets the last accepted row."""

    def commit(self, seq, keep):
        made = self._passes[seq.id]
        made.left[keep[-1]] = made.left[keep[-2]] if len(keep) > 1 else made.left[keep[-1]]
        super().commit(seq, keep)


class Uncommitted(RecurrentTarget):
    """A commit that takes the state at the end of the draft."""

    def commit(self, seq, keep):
        made = self._passes[seq.id]
        made.left[keep[-1]] = made.left[-1]
        super().commit(seq, keep)


class PublishedEarly(RecurrentTarget):
    """The state of a full page is published after the row behind it."""

    def commit(self, seq, keep):
        publish = self.states.publish

        def later(one, salt, tokens):
            state = self.states.state(one).clone()
            self.states.advance(one, 0, self.read(state, 0)[0])
            made = publish(one, salt, tokens)
            self.states.advance(one, 0, state)
            return made

        self.states.publish = later
        super().commit(seq, keep)
        self.states.publish = publish


class WrittenInPlace(RecurrentTarget):
    """A text that begins from a copy has the copy itself."""

    def begin(self, seq):
        taken = super().begin(seq)
        if taken:
            store = self.states
            store._entries[seq.id].slot = list(store._prefixes.find(None, seq.tokens[:taken]))[-1]
        return taken


MUTANTS = {
    OneTooEarly: "another state",
    Uncommitted: "another state",
    PublishedEarly: "another state",
    WrittenInPlace: "named .* not once",
}


def three_times_the_same(target, drafter):
    engine = OverStates(drafter, target, commits="states", prefixes=drafter == "ngram").engine()
    for _ in range(3):
        run(engine, [asked(LONG)])


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_fails(mutant):
    drafter = "alternating" if mutant in (OneTooEarly, Uncommitted) else "ngram"
    three_times_the_same(RecurrentTarget, drafter)
    with pytest.raises(AssertionError, match=MUTANTS[mutant]):
        three_times_the_same(mutant, drafter)


@pytest.mark.parametrize(
    ("draft", "how", "message"),
    [
        (
            Draft(tokens=torch.tensor([5, 6, 7]), parents=torch.tensor([-1, 0, 0])),
            "tokens",
            "is a tree.*commits='inputs'",
        ),
        (chain([5, 6], mask=torch.ones(2, 2).tril().bool()), "inputs", "a mask .*: take a drafter of chains or trees"),
    ],
)
def test_a_draft_that_states_cannot_follow_is_refused(draft, how, message):
    engine = OverStates(commits=how).engine()
    engine.parts.drafter.propose = lambda seqs, budgets: [draft]
    with pytest.raises(CapabilityError, match=message):
        run(engine, [asked((5,))])


def test_an_unknown_way_to_commit_is_named():
    with pytest.raises(ConfigError, match="commits='undo': it is one of inputs, states, tokens"):
        RecurrentTarget(commits="undo")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            {"drafter": "early_exit"},
            "drafter 'early_exit' begins a pass in the middle .*can_trim=False.*: take a drafter",
        ),
        ({"drafter": "swift"}, "drafter 'swift' leaves layers of the target out"),
        ({"drafter": "ngram"}, None),
    ],
)
def test_a_drafter_that_runs_parts_of_the_target_is_refused_at_start(words, message, monkeypatch):
    monkeypatch.setattr(SlotCache, "can_trim", False)
    if message is None:
        LLM("zoo:target", **words)
        return
    with pytest.raises(CapabilityError, match=message):
        LLM("zoo:target", **words)
