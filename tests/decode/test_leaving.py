"""A head that is alone leaves texts where it does not pay, and where its texts are left no hidden states are kept."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from contracts.rows.eagle import eagle_net

from outdraft.core.adoption import Adoption
from outdraft.core.drafter import Traits, arm_of, may_leave
from outdraft.core.leaving import LeavingDrafter
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.target import Needs
from outdraft.decode.suspicion import Suspicion, shielded
from outdraft.engine.loop import Engine
from outdraft.options.errors import CacheFullError
from outdraft.options.params import SamplingParams
from outdraft.options.speculative import Held
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from outdraft.verify.auto import Auto

PROMPTS = ((5, 6, 7, 8) * 4, (1, 2, 3), tuple(range(30)), (9,))
BEFORE = 8  # tokens until a text of an odd number is left


class Leaving:
    """Depth 3, every fourth round none; odd texts are left after some tokens, or never heard of."""

    def __init__(self, spares):
        self.spares, self.asked = spares, []

    def plan(self, seqs):
        self.asked += [(seq.id, seq.num_output) for seq in seqs]
        leaves = [seq.id % 2 and seq.num_output >= BEFORE for seq in seqs]
        return [
            Budget(depth=0 if gone or not seq.num_output % 4 else 3, resting=frozenset({0} if gone else ()))
            for seq, gone in zip(seqs, leaves, strict=True)
        ]

    def spare(self, seq, crowd):
        return frozenset({0}) if self.spares and seq.id % 2 else frozenset()

    def update(self, events):
        pass

    def end(self, seqs):
        pass


class Watched:
    """The drafter, and who was named to each of its verbs, by token."""

    def __init__(self, inner):
        self.inner, self.told = inner, []

    @property
    def needs(self):
        return self.inner.needs

    @property
    def traits(self):
        return self.inner.traits

    def begin(self, seqs):
        self._tell("begin", seqs)
        self.inner.begin(seqs)

    def propose(self, seqs, budgets):
        assert all(budget.depth for budget in budgets)
        self._tell("propose", seqs)
        return self.inner.propose(seqs, budgets)

    def observe(self, seen):
        self._tell("observe", [one.seq for one in seen])
        self.inner.observe(seen)

    def end(self, seqs):
        self._tell("end", seqs)
        self.inner.end(seqs)

    def _tell(self, verb, seqs):
        self.told += [(verb, seq.id, seq.num_output) for seq in seqs]


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    return Subject(DrafterRow(drafter="eagle", side=eagle_net), tmp_path_factory.mktemp("side"))


def engine_of(subject, policy):
    """An engine that serves, over one head that is watched; and what its passes were asked to keep."""
    parts = subject.engine(policy=policy, verifier=Auto()).parts
    watched = Watched(parts.drafter)
    parts = replace(parts, drafter=watched, held=Held(methods=("eagle",)))
    kept, forward = [], parts.target.forward
    parts.target.forward = lambda packed, taps=(): (
        kept.append(({seq.id for seq in packed.seqs}, bool(taps))) or forward(packed, taps)
    )
    return Engine(shielded(parts, Suspicion())), watched, kept


@pytest.mark.parametrize("spares", [False, True])
@pytest.mark.parametrize("params", [{}, {"temperature": 1.0, "seed": 7}])
def test_texts_that_are_left_keep_their_words_and_cost_nothing(subject, params, spares):
    engine, watched, kept = engine_of(subject, Leaving(spares))
    requests = [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=24, **params)) for p in PROMPTS]
    outcomes = run(engine, requests)
    assert [one.seq.output for one in outcomes] == [subject.oracle(request) for request in requests]
    odd = [(verb, count) for verb, text, count in watched.told if text % 2]
    if spares:
        assert not odd
    else:
        assert max(count for verb, count in odd if verb != "end") < BEFORE + 4
        assert [verb for verb, _ in odd].count("end") == 2, "each once"
    even = [count for verb, text, count in watched.told if verb == "observe" and not text % 2]
    assert max(even) == 24, "the others hear all"
    assert all(wants for texts, wants in kept if not all(text % 2 for text in texts))


def test_no_states_are_kept_where_all_texts_are_left(subject):
    engine, _, kept = engine_of(subject, Leaving(spares=True))
    for _ in range(2):  # texts 0 and 1
        run(engine, [Request(prompt_token_ids=(1, 2, 3), params=SamplingParams(max_tokens=6))])
    assert {wants for texts, wants in kept if texts == {0}} == {True}
    assert {wants for texts, wants in kept if texts == {1}} == {False}
    run(engine, [Request(prompt_token_ids=(1, 2, 3), params=SamplingParams(max_tokens=6))])
    assert kept[-1] == ({2}, True)


@pytest.mark.logs_faults
def test_a_text_that_was_left_does_not_come_back_where_the_drafter_has_no_room(subject):
    """The drafter begins what it hears once more; the left text is not among it, and no fault of `end` keeps it."""
    engine, watched, _ = engine_of(subject, Leaving(spares=False))
    inner, full = watched.inner.observe, [False]

    def observe(seen):
        full[0] = not full[0] and any(one.seq.num_output > BEFORE + 4 for one in seen)
        if full[0]:
            raise CacheFullError("no room")
        inner(seen)

    def end(seqs):
        raise RuntimeError("cannot forget")

    watched.inner.observe, watched.inner.end = observe, end
    requests = [Request(prompt_token_ids=p, params=SamplingParams(max_tokens=24)) for p in PROMPTS]
    outcomes = run(engine, requests)
    assert [one.seq.output for one in outcomes] == [subject.oracle(request) for request in requests]
    begun = [(text, count) for verb, text, count in watched.told if verb == "begin"]
    assert any(count for text, count in begun if not text % 2), "an even text has begun once more"
    assert not any(count for text, count in begun if text % 2)
    drafter = engine.composition.used.drafter
    assert isinstance(drafter, LeavingDrafter) and not (drafter.following or drafter._left)


def test_who_asks_other_drafters_or_may_be_replaced_does_not_leave():
    plain = Traits()
    head = SimpleNamespace(needs=Needs(taps=(2,)), traits=plain)
    assert may_leave(head) and arm_of(head, "head").listens
    assert not may_leave(SimpleNamespace(needs=Needs(), traits=plain))
    for traits in (
        replace(plain, inner=(head,)),
        replace(plain, adopt=Adoption(lambda made: None)),
        replace(plain, ahead=lambda seqs, drafts, is_over: []),
    ):
        one = SimpleNamespace(needs=head.needs, traits=traits)
        assert not may_leave(one) and not arm_of(one, "one").listens


def test_where_its_drafts_begin_stays_as_it_is():
    class Exit:
        needs = Needs(taps=(2,), prompt_taps=(1,), resume_layer=2)

        def begin(self, seqs):
            raise AssertionError

    class Text:
        id = 3

        class settled:
            resting = frozenset({4})

    drafter = LeavingDrafter(Exit(), 4)
    assert drafter.needs == Exit.needs
    drafter.begin([Text])
    assert drafter.needs == Needs(resume_layer=2)
