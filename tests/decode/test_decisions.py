"""The one record of what is decided about a pass: what it says, and that another device can follow it."""

import dataclasses
import pickle
from types import SimpleNamespace

import pytest

from outdraft import SamplingParams
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.core.sequence import Turn
from outdraft.decode.parts import Parts
from outdraft.decode.step import decide, step
from outdraft.drafters.none import NoDrafter
from outdraft.engine.loop import Engine
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.options.speculative import Settled
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget
from tests.helpers.scripted import alternating

PROMPTS = [(3, 1, 2, 4, 4, 1, 3, 2, 1), (5, 2), (1, 1, 1)]
SETTINGS = [SamplingParams(max_tokens=9), SamplingParams(max_tokens=7, temperature=1.0, seed=3)]
REQUESTS = [Request(prompt_token_ids=ids, params=SETTINGS[i % 2]) for i, ids in enumerate(PROMPTS)]


def engine_of(drafter, policy=None):
    table = TableTarget()
    parts = Parts(
        target=table,
        drafter=drafter or alternating(table.next_logits, (2, 0, 3, 1)),
        verifier=ReferenceRule(),
        policy=policy or ConstantPolicy(Budget(depth=3)),
        room=Unbounded(mixes=True),
    )
    return Engine(parts, scheduling=SchedulerSettings(max_num_batched_tokens=4))


class Sends:
    """Every pass's decisions, as they would travel."""

    def __init__(self):
        self.sent = []

    def passed(self, decisions, events, now, seconds):
        self.sent.append((pickle.dumps(decisions), events))

    def asked(self, seq, now): ...

    refused = ended = asked


def test_another_device_follows():
    """It has no drafter, no policy and no scheduler, and comes to the same texts, events and caches."""
    leader, follower, sends = engine_of(None), engine_of(NoDrafter()), Sends()
    leader.watch.add(sends)
    led = [leader.add(request) for request in REQUESTS]
    followed = {seq.id: seq for seq in map(follower.prepare, REQUESTS)}
    for seq in followed.values():
        follower.parts.target.begin(seq)
    while leader.has_work:
        leader.step()
    chunks = set()
    for sent, events in sends.sent:
        decisions = pickle.loads(sent)
        seqs = [followed[one.seq_id] for one in decisions.each]
        assert [one.start for one in decisions.each] == [seq.num_cached for seq in seqs]
        made = step(seqs, follower.parts, None, decisions)
        bare = [[dataclasses.replace(one, times=one.times.__class__()) for one in each] for each in (made, events)]
        assert bare[0] == bare[1]
        chunks |= {one.turn.max_chunk for one in decisions.each}
    assert [followed[seq.id].tokens for seq in led] == [seq.tokens for seq in led]
    assert any(seq.num_output > 1 for seq in led) and len(chunks) > 1, "prompts were read in pieces"
    assert any(event.num_accepted for _, events in sends.sent for event in events)


def test_it_says_who_decided():
    engine = engine_of(None)
    seqs = [engine.prepare(REQUESTS[1]) for _ in range(4)]
    engine.parts.drafter.begin(seqs)
    for seq in seqs[:3]:
        seq.num_cached = 1
    seqs[1].settled = Settled(depth=1)
    seqs[2].turn = Turn(drafts=False)
    planned, asked, full, reading = decide(seqs, engine.parts).each
    assert planned.budget == Budget(depth=3) and planned.is_planned and planned.draft.num_nodes == 4
    assert asked.budget.depth == 1 and not asked.is_planned and asked.draft.num_nodes == 2
    assert full.budget.depth == 0 and not full.is_planned and full.draft.num_nodes == 1
    assert reading.budget is None and reading.is_planned and reading.draft.num_nodes == 1
    assert [one.start for one in (planned, full, reading)] == [1, 1, 0] and full.turn is seqs[2].turn


def test_what_memory_cuts_was_not_planned():
    full = SimpleNamespace(capacity=100, free=2, missing=lambda seq, num_rows: num_rows)
    engine = engine_of(None)
    seq = engine.prepare(REQUESTS[1])
    seq.num_cached = 1
    engine.parts.drafter.begin([seq])
    for room, num_nodes in ((Unbounded(), 4), (full, 2)):
        decisions = decide([seq], dataclasses.replace(engine.parts, room=room))
        assert decisions.each[0].draft.num_nodes == num_nodes and decisions.seconds > 0
        assert decisions.is_whole is decisions.each[0].is_planned is (room is not full)


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Turn().drafts = False
