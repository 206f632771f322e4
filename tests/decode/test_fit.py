"""Guesses without room: the last in order are cut, without a look at their tokens, and the others stay whole."""

from dataclasses import replace

import pytest
import torch

from outdraft.core.draft import Draft, Resume, Role, chain
from outdraft.core.drafter import Traits
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.core.target import Needs
from outdraft.decode import fit
from outdraft.decode.apart import Isolated
from outdraft.decode.fit import what_fits
from outdraft.decode.guidance import GuidedTarget
from outdraft.decode.parts import Parts
from outdraft.decode.step import step
from outdraft.engine.guided import GuidedRoom
from outdraft.engine.loop import Engine
from outdraft.options.errors import CacheFullError
from outdraft.options.params import SamplingParams
from outdraft.testing.contract.distribution import Uncoupled
from outdraft.testing.statistics import judge_counts
from outdraft.testing.subject import run
from outdraft.verify.auto import Auto
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget, oracle

FOUR = 4  # rows of a page here


class Pages(Unbounded):
    """So many free pages; a sequence has those that its rows have begun."""

    capacity = 10_000

    def __init__(self, free):
        super().__init__(mixes=True)
        self.free = free

    def missing(self, seq, num_rows):
        return -(-(seq.num_cached + num_rows) // FOUR) - -(-seq.num_cached // FOUR)


def engine_of(table, drafter, rule, room, depth=30, **words):
    return Engine(
        Parts(target=table, drafter=drafter, verifier=rule, policy=ConstantPolicy(Budget(depth=depth)), room=room),
        **words,
    )


def sequences(lengths, num_cached=None):
    """Prompts of these lengths, read but for the pending token."""
    table = TableTarget()
    engine = engine_of(table, oracle(table.next_logits), ReferenceRule(), Unbounded())
    seqs = [engine.prepare(Request(prompt_token_ids=(1,) * length)) for length in lengths]
    for seq in seqs:
        seq.num_cached = len(seq.tokens) - 1 if num_cached is None else num_cached
    return seqs


def guess_of(num_nodes):
    return chain([1, *range(2, num_nodes + 1)])


@pytest.mark.parametrize(
    ("free", "sizes"),
    [(9, [9, 9, 9]), (6, [9, 9, 9]), (5, [9, 9, 8]), (4, [9, 9, 4]), (3, [9, 8, 4]), (1, [8, 4, 4]), (0, [4, 4, 4])],
)
def test_the_last_in_order_are_cut_to_what_is_left(free, sizes):
    """Each has four rows, and a page for the pending token is wanted by none: it is counted before."""
    seqs = sequences([5, 5, 5])
    guesses = [guess_of(9)] * 3
    found = what_fits(seqs, guesses, Pages(free + 3))  # a page each for the pending tokens
    assert [one.num_nodes for one in found] == sizes
    assert all(one is guess for one, guess in zip(found, guesses, strict=True) if one.num_nodes == 9)


def test_what_reads_takes_its_chunk_and_no_guess():
    seqs = sequences([5, 101], num_cached=4)
    seqs[1].turn = replace(seqs[1].turn, max_chunk=40)
    found = what_fits(seqs, [guess_of(9), guess_of(1)], Pages(11))  # one for the pending token, ten for the chunk
    assert [one.num_nodes for one in found] == [4, 1]
    assert what_fits(seqs, [guess_of(9), guess_of(1)], Pages(13))[0].num_nodes == 9


def test_memory_without_a_bound_is_not_asked():
    seqs, guesses = sequences([5, 5]), [guess_of(40), guess_of(40)]
    assert all(one is guess for one, guess in zip(what_fits(seqs, guesses, Unbounded()), guesses, strict=True))


def test_every_field_is_cut():
    seqs, n = sequences([5]), 9
    tree = Draft(
        tokens=torch.arange(1, n + 1),
        parents=torch.tensor([-1, 0, 0, 1, 1, 2, 3, 3, 3]),
        q=torch.rand(n, 61),
        roles=torch.tensor([Role.VERIFY] * 6 + [Role.PROBE] * 3),
        resume=Resume(layer=1, hidden=torch.rand(n, 8)),
        confidence=torch.rand(n),
    )
    (cut,) = what_fits(seqs, [tree], Pages(1))
    assert cut.num_nodes == 4 and cut.parents.tolist() == [-1, 0, 0, 1]
    for name in ("tokens", "q", "roles", "confidence"):
        assert torch.equal(getattr(cut, name), getattr(tree, name)[:4]), name
    assert torch.equal(cut.resume.hidden, tree.resume.hidden[:4]) and cut.resume.layer == 1


def test_further_rows_of_q_stay():
    seqs = sequences([5])
    drawn = Draft(
        tokens=torch.arange(1, 7),
        parents=torch.tensor([-1, 0, 0, 0, 0, 1]),
        q=torch.rand(8, 61),
        drawn_from=torch.tensor([-1, 0, 6, 7, 0, 1]),
    )
    (cut,) = what_fits(seqs, [drawn], Pages(1))
    assert cut.q is drawn.q and cut.drawn_from.tolist() == [-1, 0, 6, 7]


@pytest.mark.parametrize("words", [{"mask": torch.ones(9, 9, dtype=torch.bool)}, {"embeds": torch.rand(9, 8)}])
def test_what_cannot_be_cut_is_dropped_and_leaves_its_room_to_the_next(words):
    seqs = sequences([5, 5])
    whole = Draft(tokens=torch.arange(1, 10), parents=torch.arange(-1, 8), **words)
    found = what_fits(seqs, [whole, guess_of(8)], Pages(3))
    assert [one.num_nodes for one in found] == [1, 8]


class Full(TableTarget):
    """Refuses a pass for which its room has no pages."""

    def __init__(self, room, **words):
        super().__init__(**words)
        self.room = room

    def forward(self, packed, taps=()):
        counts = [stop - start for start, stop in zip(packed.row_starts[:-1], packed.row_starts[1:], strict=True)]
        if sum(self.room.missing(seq, count) for seq, count in zip(packed.seqs, counts, strict=True)) > self.room.free:
            raise CacheFullError("no room")
        return super().forward(packed, taps)


class Alone(Full):
    """Breaks where two sequences share a pass; `refuses`: and has no room for any guess."""

    refuses = False

    def forward(self, packed, taps=()):
        if len(packed.seqs) > 1:
            raise RuntimeError("two at once")
        if self.refuses and packed.node_starts[-1] > 1:
            raise CacheFullError("no room")
        return super().forward(packed, taps)


def two_read(table, room, **words):
    """Two texts of the same prompt, read but for the pending token."""
    engine = engine_of(table, oracle(table.next_logits), ReferenceRule(), room, **words)
    seqs = [
        engine.prepare(Request(prompt_token_ids=(3, 1, 2, 4, 5), params=SamplingParams(max_tokens=40)))
        for _ in range(2)
    ]
    for seq in seqs:
        table.begin(seq)
        table.cached[seq.id] = seq.tokens[:-1]
        seq.num_cached = 4
        engine.parts.drafter.begin([seq])
        engine.parts.drafter.num_seen[seq.id] = 4
    return engine, seqs


@pytest.mark.parametrize("kind", [Full, Alone])
@pytest.mark.logs_faults
def test_one_guess_without_room_costs_the_others_none(kind):
    """The first has room for all of its thirty tokens, the second for what is left of its page."""
    room = Pages(9)
    table = kind(room)
    engine, seqs = two_read(table, room, isolates=True)
    first, second = step(seqs, engine.composition.used, None if kind is Full else Isolated())
    assert first.num_draft_tokens == 30 and len(first.tokens) == 31
    assert second.num_draft_tokens == 3 and len(second.tokens) == 4
    assert seqs[0].output[:4] == seqs[1].output


@pytest.mark.logs_faults
def test_who_finds_no_room_for_a_guess_alone_either_keeps_the_drafter(monkeypatch):
    room = Pages(100)
    table = Alone(room)
    table.refuses, learned = True, []
    engine, seqs = two_read(table, room, isolates=True)
    monkeypatch.setattr(ConstantPolicy, "update", lambda self, events: learned.extend(events))
    events = step(seqs, engine.composition.used, Isolated())
    assert [len(event.tokens) for event in events] == [1, 1] and all(seq.speculates for seq in seqs)
    assert learned == []  # nothing of guesses that were not looked at


def test_a_guided_guess_is_cut_to_the_pages_of_both_texts():
    table = TableTarget(vocab_size=61)
    target = GuidedTarget(table)
    room = GuidedRoom(Pages(4), target)
    engine = engine_of(target, oracle(table.next_logits), ReferenceRule(), room)
    params = SamplingParams(guidance_scale=2.0)
    seq = engine.prepare(Request(prompt_token_ids=(1,) * 5, negative_prompt_token_ids=(2,) * 5, params=params))
    target.begin(seq)
    seq.num_cached = target.shadow(seq).num_cached = 4
    (found,) = what_fits([seq], [guess_of(20)], room)
    assert found.num_nodes == 8


# No distribution changes

VOCAB, TEXTS = 5, 900


class StopsAfterFew:
    """Draws a chain of up to four tokens, and goes on only behind tokens above 1: its length tells what it drew."""

    needs, traits = Needs(), Traits()

    def __init__(self, table):
        self.table = table

    def begin(self, seqs):
        pass

    def propose(self, seqs, budgets):
        return [self._draw(seq) for seq in seqs]

    def _draw(self, seq):
        tokens, rows = [seq.pending], []
        for depth in range(4):
            rows.append(self.table.next_logits([*seq.tokens, *tokens[1:]]).softmax(-1))
            tokens += seq.draft_coins(seq).draw(rows[-1], depth, 0)
            if tokens[-1] < 2:
                break
        return chain(tokens, torch.stack(rows))

    def observe(self, seen):
        pass

    def end(self, seqs):
        pass


def sampled(monkeypatch):
    """Texts of three tokens where two rows beyond the pending one have room, judged by the target's distribution."""
    monkeypatch.setattr("outdraft.engine.scheduler.memory.PAGE", 1)
    room = Unbounded(mixes=True)
    room.capacity, room.free = 1000, 2 * TEXTS
    room.missing = lambda seq, num_rows: 0 if num_rows <= 1 else 10**6 if num_rows > 2 else 1
    table = TableTarget(vocab_size=VOCAB, order=4, sharpness=1.2, seed=4)
    drafter = StopsAfterFew(TableTarget(vocab_size=VOCAB, seed=2, sharpness=1.2))
    engine = engine_of(table, drafter, Uncoupled(Auto()), room)
    batch = [
        Request(prompt_token_ids=(1,), params=SamplingParams(max_tokens=3, temperature=1.0, seed=seed, ignore_eos=True))
        for seed in range(TEXTS)
    ]
    outcomes = run(engine, batch)
    texts = [tuple(outcome.seq.output) for outcome in outcomes]
    contexts = sorted({text[:i] for text in texts for i in range(3)})
    counts = torch.zeros(len(contexts), VOCAB, dtype=torch.float64)
    for text in texts:
        for i, token in enumerate(text):
            counts[contexts.index(text[:i]), token] += 1
    logits = [table.next_logits([1, *context]) for context in contexts]
    distributions = torch.stack([row.softmax(-1) for row in logits])
    drafted = sum(outcome.stats.num_draft_tokens for outcome in outcomes)
    return judge_counts(counts, distributions, sum(outcome.stats.num_steps for outcome in outcomes)), drafted


def test_a_cut_changes_no_distribution(monkeypatch):
    found, drafted = sampled(monkeypatch)
    assert found.passes and drafted > TEXTS, found


def test_dropping_a_guess_for_its_length_is_noticed(monkeypatch):
    monkeypatch.setattr(fit, "_cut", lambda guess, n: guess if n == guess.num_nodes else chain(guess.tokens[:1]))
    assert not sampled(monkeypatch)[0].passes
