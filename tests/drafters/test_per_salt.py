"""What a drafter keeps of one request for later ones tells nothing to requests of another `cache_salt`."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from contracts.spec_rows import ROWS

from outdraft.core.request import Request
from outdraft.drafters.shared.per_salt import MOST, PerSalt
from outdraft.options.params import SamplingParams
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, collect, join, run

# What these keep holds no token of a text: how often ranks were accepted, and which layers may be left out.
FIGURES = {"sequoia", "swift"}
BASE = DrafterRow(
    drafter="cascade", options={"models": (), "lengths": ((6,),)}
)  # whose models would hide what it knows
REMEMBERING = [BASE, *(row for row in ROWS if row.remembers and row.drafter not in {"cascade", *FIGURES})]
ASKED = Request(
    prompt_token_ids=(5, 6, 7, 8, 5, 6, 2), params=SamplingParams(max_tokens=40, ignore_eos=True), cache_salt="a"
)


def guesses(engine, *requests):
    """What is observed of each request."""
    return [told(outcome) for outcome in run(engine, requests)]


def told(outcome):
    """What was drafted and accepted in every step."""
    return [(event.num_draft_tokens, event.num_accepted) for event in outcome.events]


def memories(engine):
    return next(one for one in vars(engine.parts.drafter).values() if isinstance(one, PerSalt))


@pytest.fixture(params=REMEMBERING, ids=lambda row: row.name)
def subject(request, tmp_path):
    return Subject(request.param, tmp_path)


def test_all_that_remember_texts_are_tried():
    assert {row.drafter for row in ROWS if row.remembers} == {row.drafter for row in REMEMBERING} | FIGURES
    assert {row.drafter for row in REMEMBERING} == {"cascade", "pia", "recycling", "suffix"}


def test_another_salt_learns_nothing(subject):
    """Its guesses are those of an engine that has read nothing; those of the same salt are not."""
    (first,) = guesses(subject.engine(), ASKED)
    engine = subject.engine()
    assert guesses(engine, ASKED) == [first]
    for salt in ("b", None, ""):
        assert guesses(engine, replace(ASKED, cache_salt=salt)) == [first], salt
    assert guesses(engine, ASKED) != [first]
    assert len(memories(engine)) == 4


def test_what_comes_later_does_not_reach_an_earlier_salt(subject):
    beginning = replace(ASKED, params=SamplingParams(max_tokens=4))
    wanted, engine = subject.engine(), subject.engine()
    for one in (wanted, engine):
        guesses(one, beginning)
    guesses(engine, replace(ASKED, cache_salt="b"))
    assert guesses(engine, ASKED) == guesses(wanted, ASKED)


def test_nor_beside_it_in_one_batch(subject):
    """Requests that join while one of another salt is being written; only one of its own salt observes it."""
    (first,) = guesses(subject.engine(), ASKED)
    engine = subject.engine()
    outcomes = {}
    join(engine, outcomes, [ASKED])
    for _ in range(len(first) // 2):
        collect(engine, outcomes)
    join(engine, outcomes, [replace(ASKED, cache_salt="b"), replace(ASKED, cache_salt=None), ASKED])
    while engine.has_work:
        collect(engine, outcomes)
    _, *apart, alike = map(told, outcomes.values())
    assert apart == [first] * 2 and alike != first


def test_there_are_never_more_memories_than_may_be(subject):
    engine = subject.engine()
    short = replace(ASKED, params=SamplingParams(max_tokens=3))
    for i in range(MOST + 3):
        guesses(engine, replace(short, cache_salt=f"user {i}"))
    assert len(memories(engine)) == MOST
    engine.parts.drafter.traits.forget()
    assert len(memories(engine)) == 0


def test_the_least_recently_used_memory_goes():
    made = PerSalt(list)
    seqs = [SimpleNamespace(request=SimpleNamespace(cache_salt=f"{i}")) for i in range(MOST + 1)]
    for seq in seqs[:MOST]:
        made.of(seq).append(seq)
    assert made.of(seqs[0]) == [seqs[0]]
    assert made.of(seqs[MOST]) == []
    assert made.of(seqs[0]) == [seqs[0]] and made.of(seqs[1]) == []
    assert len(made) == MOST
