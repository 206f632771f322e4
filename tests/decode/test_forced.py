"""Drafts that a constraint makes or cuts, and what drafter and policy learn of such rounds."""

from dataclasses import replace

import pytest
import torch

from outdraft.core.draft import Continuation, Draft, Role, chain
from outdraft.core.drafter import Traits
from outdraft.core.events import StepTimes
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode.apart import Isolated
from outdraft.decode.forced import MOST_FORCED, Undrafted, forced_draft, without_forbidden
from outdraft.decode.parts import Parts
from outdraft.decode.shield import ShieldedDrafter, ShieldedPolicy
from outdraft.decode.step import step
from outdraft.drafters.none import NoDrafter
from outdraft.engine.loop import Engine
from outdraft.options.params import SamplingParams
from tests.helpers.fakes import ReferenceRule, TableTarget

VOCAB = 11


class Song:
    """The text is `line`, from the place that has been reached; from `free` on anything may follow."""

    def __init__(self, line, free=None, ends=False):
        self.line, self.free, self.ends, self.at = list(line), len(line) if free is None else free, ends, 0

    def advance(self, token):
        self.at += 1

    def allowed(self, path):
        at = self.at + len(path)
        may = torch.full((VOCAB,), at >= self.free)
        if at < self.free:
            may[self.line[at]] = True
        return may

    def is_over(self):
        return self.ends and self.at >= self.free

    def forced(self):
        return self.line[self.at : self.free]


class Listens(NoDrafter):
    """Guesses token 1 twice, and keeps what it observes."""

    def __init__(self, guesses=True, peeks=False):
        self.traits, self.seen, self.asked = Traits(guesses=guesses, peeks=peeks), [], []

    def propose(self, seqs, budgets):
        self.asked += [seq.id for seq in seqs]
        return [
            chain([seq.pending, 1, 1] if budget.depth else [seq.pending])
            for seq, budget in zip(seqs, budgets, strict=True)
        ]

    def observe(self, seen):
        self.seen += seen


class Plans:
    def __init__(self, depth=2):
        self.depth, self.asked, self.told = depth, [], []

    def plan(self, seqs):
        self.asked += [seq.id for seq in seqs]
        return [Budget(depth=self.depth)] * len(seqs)

    def update(self, events):
        self.told.append(list(events))


def begin(*songs, drafter=None, policy=None, **others):
    """Sequences whose prompts are read, in an engine."""
    target = TableTarget(vocab_size=VOCAB)
    engine = Engine(
        Parts(target=target, drafter=drafter or Listens(), verifier=ReferenceRule(), policy=policy or Plans())
    )
    settings = {"num_speculative_tokens": others.pop("num_speculative_tokens", None)}
    seqs = []
    for song in songs:
        make = None if song is None else (lambda song=song: song)
        params = SamplingParams(**{"max_tokens": 9, **others})
        seq = engine.prepare(Request(prompt_token_ids=(3, 1, 2), params=params, constraint=make, **settings))
        target.begin(seq)
        target.cached[seq.id], seq.num_cached = seq.tokens[:-1], 2
        seqs.append(seq)
    return engine, seqs


def test_what_is_forced_is_drafted_and_no_drafter_is_asked():
    engine, (seq,) = begin(Song([5, 6, 7, 8]))
    (event,) = step([seq], engine.parts)
    drafter, policy = engine.parts.drafter, engine.parts.policy
    assert seq.output[:4] == [5, 6, 7, 8] and len(seq.output) == 5 and event.draft_depth == event.num_accepted == 4
    assert drafter.asked == [] and policy.asked == [] and policy.told == []


@pytest.mark.parametrize("ends", [False, True])
def test_the_drafter_sees_rows_that_were_read(ends):
    """As behind a prompt: the last row alone is a guess's, of a guess that is empty."""
    engine, (seq,) = begin(Song([5, 6, 7, 8], ends=ends))
    step([seq], engine.parts)
    (seen,) = engine.parts.drafter.seen
    rows = 4 if ends else 5  # "8" is the last token, and pending
    assert (seen.start, seen.num_committed, seq.num_cached) == (2, rows, 2 + rows)
    assert seen.draft.tokens.tolist() == [seq.tokens[1 + rows]] and not isinstance(seen.draft, Undrafted)
    assert (seen.verdict.path, seen.verdict.token, seen.verdict.bonus) == ((), seq.tokens[2 + rows], True)
    assert seen.logits.equal(engine.parts.target.next_logits(seq.tokens[: 2 + rows])[None])
    assert seq.output == [5, 6, 7, 8, *seq.output[4:]] and (seq.finish_reason == "stop") == ends


def test_no_drafter_works_ahead_of_what_is_forced():
    class Ahead(Listens):
        def __init__(self):
            super().__init__()
            self.asked_ahead = []
            self.traits = Traits(ahead=self.ahead)

        def ahead(self, seqs, drafts, is_over):
            self.asked_ahead += [(seq.id, draft.num_nodes) for seq, draft in zip(seqs, drafts, strict=True)]
            return [Continuation(token=4)] * len(seqs)

    engine, seqs = begin(Song([5, 6, 7, 8]), None, drafter=Ahead())
    step(seqs, engine.parts)
    assert engine.parts.drafter.asked_ahead == [(seqs[1].id, 3)]
    forced, own = (seen.draft for seen in engine.parts.drafter.seen)
    assert forced.continuation is None and own.continuation == Continuation(token=4)


@pytest.mark.parametrize("dear", [False, True])
def test_nothing_is_guessed_where_masks_are_dear(dear):
    """The text is the same, and the policy learns nothing of a round that went otherwise than planned."""
    song = Song([5, 6, 7, 8], free=0)
    song.is_dear, song.forced = dear, lambda: []
    engine, seqs = begin(song, None)
    events = step(seqs, engine.parts)
    assert [event.draft_depth for event in events] == [0 if dear else 2, 2]
    assert [event.seq_id for event in engine.parts.policy.told[0]] == [seq.id for seq in seqs[dear:]]
    assert seqs[0].output[0] == seqs[1].output[0]


def test_others_are_asked_and_share_the_time(monkeypatch):
    engine, seqs = begin(Song([5, 6, 7, 8]), None, Song([4] * 5), None)
    clock = iter([0.0, 0.5, 1.5, 2.0, 4.0, 12.0])
    monkeypatch.setattr("outdraft.decode.step.perf_counter", lambda: next(clock))
    events = step(seqs, engine.parts)
    drafter, policy = engine.parts.drafter, engine.parts.policy
    assert drafter.asked == policy.asked == [seqs[1].id, seqs[3].id]
    assert [event.seq_id for event in policy.told[0]] == drafter.asked
    assert events[0].times == StepTimes(draft=0.25, target=0.5, rest=2.0, num_texts=4)
    assert {event.times for event in policy.told[0]} == {StepTimes(draft=0.5, target=1.0, rest=4.0, num_texts=4)}
    assert [seen.draft.num_nodes for seen in drafter.seen] == [1, 3, 1, 3]


@pytest.mark.parametrize(("peeks", "limit"), [(True, 2), (False, 4)])
def test_from_how_many_tokens_on_no_drafter_is_asked(peeks, limit):
    """A network drafts under the mask, so it begins with what is forced and goes on; a look-up knows nothing of it."""
    for count in (2, 3, 4):
        engine, (seq,) = begin(Song([5] * count), drafter=Listens(peeks=peeks))
        step([seq], engine.parts)
        assert (engine.parts.drafter.asked == []) == (count >= limit)


@pytest.mark.parametrize(
    ("others", "count"),
    [
        ({}, 5),
        ({"num_speculative_tokens": 0}, 0),
        ({"num_speculative_tokens": 3}, 3),
        ({"max_tokens": 4}, 3),
        ({"max_tokens": 2}, 0),
    ],
)
def test_how_much_is_drafted(others, count):
    """As far as the request lets it; of the last token nothing is left to draft."""
    _, (seq,) = begin(Song([5] * 5), **others)
    guess = forced_draft(seq, least=2)
    assert (0 if guess is None else guess.num_nodes - 1) == count
    if guess is not None:
        assert guess.tokens.tolist() == [2] + [5] * count and guess.parents.tolist() == list(range(-1, count))


def test_nothing_is_drafted_where_there_is_no_room():
    _, (seq,) = begin(Song([5] * 5))
    seq.turn = replace(seq.turn, drafts=False)
    assert forced_draft(seq, least=1) is None


def test_a_draft_is_no_longer_than_a_pass_should_be():
    _, (seq,) = begin(Song([5] * 99), max_tokens=200)
    assert forced_draft(seq, least=2).num_nodes == MOST_FORCED + 1


def test_plain_decoding_stays_plain():
    engine, (seq,) = begin(Song([5, 6, 7, 8]), drafter=Listens(guesses=False), policy=Plans(depth=0))
    for shielded in (False, True):
        parts = engine.parts
        if shielded:
            parts = Parts(
                target=parts.target,
                drafter=ShieldedDrafter(parts.drafter),
                verifier=parts.verifier,
                policy=ShieldedPolicy(parts.policy),
            )
        (event,) = step([seq], parts)
        assert event.num_draft_tokens == 0 and len(event.tokens) == 1


def test_one_forced_token_is_drafted_where_the_drafter_says_nothing():
    for depth, drafted in ((2, 2), (0, 1)):
        engine, (seq,) = begin(Song([5]), policy=Plans(depth=depth))
        (event,) = step([seq], engine.parts)
        assert event.num_draft_tokens == drafted and engine.parts.drafter.asked == [seq.id]
        assert seq.output[0] == 5


def test_a_forbidden_end_of_a_look_up_is_cut_off():
    """Only of drafters that may propose what they like: the others draft under the mask."""
    for peeks, drafted in ((True, 1), (False, 2)):
        engine, (seq,) = begin(Song([1, 5, 6]), drafter=Listens(peeks=peeks), policy=Plans())
        seq.constraint.forced = lambda: []
        (event,) = step([seq], engine.parts)
        assert (event.num_draft_tokens, event.num_accepted, seq.output) == (drafted, 1, [1, 5])
        assert engine.parts.drafter.seen[0].draft.num_nodes == 1 + drafted


def test_what_is_cut_and_what_is_not():
    _, (seq,) = begin(Song([1, 2, 3]))
    cut = without_forbidden(seq, chain([2, 1, 2, 4, 3], confidence=torch.arange(5.0)))
    assert cut.tokens.tolist() == [2, 1, 2] and cut.parents.tolist() == [-1, 0, 1]
    assert cut.confidence.tolist() == [0, 1, 2]
    assert without_forbidden(seq, chain([2, 4])).num_nodes == 1
    right, ids = chain([2, 1, 2, 3]), torch.tensor([2, 4, 4])
    drawn = chain([2, 4], torch.ones(1, VOCAB) / VOCAB)
    tree = Draft(tokens=ids, parents=torch.tensor([-1, 0, 0]))
    probes = Draft(
        tokens=ids, parents=torch.tensor([-1, 0, 1]), roles=torch.tensor([Role.VERIFY, Role.PROBE, Role.PROBE])
    )
    for whole in (right, drawn, tree, probes):
        assert without_forbidden(seq, whole) is whole


@pytest.mark.logs_faults
def test_a_form_that_raises_ends_its_own_request_alone():
    class Broken(Song):
        is_broken = False

        def allowed(self, path):
            if self.is_broken:
                raise ValueError("broken")
            return super().allowed(path)

        forced = allowed

    engine, seqs = begin(Broken([1, 2]), Song([5, 6, 7, 8]))
    seqs[0].constraint.is_broken = True
    parts = Parts(
        target=engine.parts.target,
        drafter=ShieldedDrafter(Listens(peeks=True)),
        verifier=ReferenceRule(),
        policy=ShieldedPolicy(Plans()),
    )
    events = step(seqs, parts, Isolated())
    assert [event.finish_reason for event in events] == ["error", None]
    assert seqs[1].output[:3] == [5, 6, 7]
