"""One step taken apart: what each part of it is given, what an event says, and how the seconds are shared out."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from outdraft.core.draft import Continuation, Draft, Role, chain
from outdraft.core.events import Source, StepTimes, step_times
from outdraft.core.packing import pack
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.room import Unbounded
from outdraft.core.target import TargetOutput
from outdraft.core.verdict import Verdict
from outdraft.decode import distributions
from outdraft.decode.commit import Judged, commit
from outdraft.decode.distributions import target_distributions
from outdraft.decode.executor import RunAhead
from outdraft.decode.parts import Parts
from outdraft.decode.step import decide, judge, step
from outdraft.engine.loop import Engine
from outdraft.options.errors import CacheFullError
from outdraft.options.params import SamplingParams
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget, oracle


def engine_of(table: TableTarget, **others) -> Engine:
    parts = Parts(
        target=table,
        drafter=oracle(table.next_logits),
        verifier=ReferenceRule(),
        policy=ConstantPolicy(Budget(depth=3)),
        **others,
    )
    return Engine(parts)


def sequences(engine: Engine, **params):
    """Two that have been read but for the pending token, which is what a round begins with."""
    seqs = [
        engine.prepare(Request(prompt_token_ids=ids, params=SamplingParams(max_tokens=9, **params)))
        for ids in ((3, 1, 2), (5, 2))
    ]
    for seq in seqs:
        engine.parts.target.begin(seq)
        engine.parts.target.cached[seq.id] = seq.tokens[:-1]
        seq.num_cached = len(seq.tokens) - 1
        engine.parts.drafter.begin([seq])
        engine.parts.drafter.num_seen[seq.id] = seq.num_cached
    return seqs


def test_the_seconds_of_a_step_are_shared_out(monkeypatch):
    """Deciding takes a half, as packing does; the pass takes 2, the rest 8."""
    clock = iter([0.0, 0.5, 1.5, 2.0, 4.0, 12.0])
    monkeypatch.setattr("outdraft.decode.step.perf_counter", lambda: next(clock))
    engine = engine_of(TableTarget())
    events = step(sequences(engine), engine.parts)
    assert [(e.times.draft, e.times.target, e.times.rest) for e in events] == [(0.5, 1.0, 4.0)] * 2
    whole = step_times(events)
    assert (whole.draft, whole.target, whole.rest) == (1.0, 2.0, 8.0)


def test_the_prompts_taps_are_asked_for_while_a_prompt_is_read():
    table, asked = TableTarget(), []
    engine = engine_of(table)
    drafter = engine.parts.drafter
    drafter.needs = type(drafter.needs)(taps=(2,), prompt_taps=(1,))
    honest = table.forward
    table.forward = lambda packed, taps=(): asked.append(taps) or honest(packed, taps)
    seq = engine.prepare(Request(prompt_token_ids=(3, 1, 2), params=SamplingParams(max_tokens=9)))
    table.begin(seq)
    drafter.begin([seq])
    for _ in range(2):
        step([seq], engine.parts)
    assert asked == [(2, 1), (2,)]


class Full:
    """Memory in which two sequences have room for their pending tokens and `spare` more rows, a row a page."""

    capacity, cuts, cached = 100, False, None

    def __init__(self, spare):
        self.free = 2 + spare

    def missing(self, seq, num_rows):
        return num_rows


def asked_for(told):
    """A policy that wants three tokens each time, and what it learns from."""
    return SimpleNamespace(plan=lambda seqs: [Budget(depth=3)] * len(seqs), update=told.extend)


def no_room(*given):
    raise CacheFullError("no page is left")


@pytest.mark.parametrize(
    ("trouble", "learned"), [("none", [0, 1]), ("no guesses", []), ("no rows to draft", []), ("the last is cut", [0])]
)
def test_a_policy_learns_nothing_from_a_guess_that_memory_has_cut(trouble, learned):
    told = []
    engine = engine_of(TableTarget(), room=Full(3) if trouble == "the last is cut" else Unbounded())
    seqs = sequences(engine)
    for seq in seqs:
        seq.turn = replace(seq.turn, drafts=trouble != "no guesses")
    if trouble == "no rows to draft":
        engine.parts.drafter.propose = no_room
    events = step(seqs, replace(engine.parts, policy=asked_for(told)))
    assert [event.seq_id for event in told] == [seqs[i].id for i in learned] and len(events) == 2


def test_a_policy_learns_nothing_where_a_pass_had_no_room_for_its_guesses():
    told, table = [], TableTarget()
    engine, honest = engine_of(table), table.forward
    table.forward = lambda packed, taps=(): no_room() if packed.node_starts[-1] > 2 else honest(packed, taps)
    events = step(sequences(engine), replace(engine.parts, policy=asked_for(told)))
    assert [len(event.tokens) for event in events] == [1, 1] and told == []


def judged_by_hand(engine, seqs, drafts, verdicts) -> Judged:
    packed, decisions = pack(seqs, drafts), decide(seqs, replace(engine.parts, policy=asked_for([])))
    scored = engine.parts.target.forward(packed, (0,))
    p = target_distributions(packed, scored.logits)
    return Judged(packed=packed, decisions=decisions, scored=scored, p=p, verdicts=verdicts, times=StepTimes(), until=0)


TREE = Draft(  # 0 -> (1 -> 3), 2; node 4 below 2 is a probe
    tokens=torch.tensor([2, 4, 5, 6, 7]),
    parents=torch.tensor([-1, 0, 0, 1, 2]),
    roles=torch.tensor([Role.VERIFY] * 4 + [Role.PROBE]),
    confidence=torch.tensor([1.0, 0.5, 0.25, 0.125, 0.75]),
)


@pytest.mark.parametrize(
    ("verdict", "tokens", "last", "choices", "confidences", "rejected"),
    [
        (Verdict((), 9, False), (9,), Source.RECOVERED, ((2, 2),), (0.5,), True),
        (Verdict((2,), 9, True), (5, 9), Source.BONUS, ((1, 2),), (0.25,), False),
        (Verdict((1,), 9, False), (4, 9), Source.RECOVERED, ((0, 2), (1, 1)), (0.5, 0.125), True),
        (Verdict((1, 3), 9, True), (4, 6, 9), Source.BONUS, ((0, 2), (0, 1)), (0.5, 0.125), False),
    ],
)
def test_an_event_tells_what_became_of_a_tree(verdict, tokens, last, choices, confidences, rejected):
    engine = engine_of(TableTarget(vocab_size=10))
    first, second = sequences(engine, logprobs=0)
    packed = judged_by_hand(engine, [first, second], [TREE, chain([2])], [verdict, Verdict((), 8, False)])
    (event, plain), (seen, _) = commit(packed, engine.parts.target)
    assert event.tokens == tokens and event.sources == (Source.ACCEPTED,) * len(verdict.path) + (last,)
    assert event.choices == choices and event.confidences == confidences and event.rejected is rejected
    assert (event.num_draft_tokens, event.draft_depth, event.num_nodes) == (3, 2, 5)
    assert event.num_accepted == len(verdict.path) and len(event.logprobs) == len(tokens)
    assert plain.sources == (Source.PLAIN,) and plain.choices == () and not plain.rejected
    assert (plain.num_draft_tokens, plain.draft_depth, plain.num_nodes) == (0, 0, 1)
    kept = [0, *verdict.path]
    assert seen.start == 2 and seen.num_committed == len(kept) and first.num_cached == 2 + len(kept)
    assert engine.parts.target.cached[first.id] == [3, 1, 2, *tokens[:-1]]
    assert seen.hidden[0].argmax(-1).tolist() == [2, *tokens[:-1]], "the rows of the path, and no other"


def test_the_event_of_a_prompt_chunk_is_empty_but_for_its_rows():
    engine = engine_of(TableTarget())
    seq = engine.prepare(Request(prompt_token_ids=(3, 1, 2, 4), params=SamplingParams(max_tokens=9)))
    seq.variant = "int8"
    engine.parts.target.begin(seq)
    packed = pack([seq], [None], max_chunk=2)
    scored = engine.parts.target.forward(packed)
    judged = Judged(
        packed=packed,
        decisions=decide([seq], engine.parts),
        scored=scored,
        p=scored.logits,
        verdicts=[],
        times=StepTimes(),
        until=0,
    )
    (event,), (seen,) = commit(judged, engine.parts.target)
    assert event.tokens == event.sources == () and event.num_certain == 2 and event.variant == "int8"
    assert seen.draft is None and seen.logits is None and (seen.start, seen.num_committed) == (0, 2)


def test_only_the_sequences_that_are_judged_run_ahead():
    engine = engine_of(TableTarget())
    reading, first, second = [
        engine.prepare(Request(prompt_token_ids=(3, 1, 2), params=SamplingParams())) for _ in range(3)
    ]
    first.num_cached = second.num_cached = 2
    packed = pack([reading, first, second], [None, chain([2, 4]), chain([2, 5])], max_chunk=1)
    told = []

    def ahead(seqs, drafts, is_over):
        told.append(([seq.id for seq in seqs], [draft.num_nodes for draft in drafts], is_over()))
        return [Continuation(token=7), None]

    meanwhile = RunAhead(ahead, packed)
    meanwhile.work(lambda: True)
    assert told == [([first.id, second.id], [2, 2], True)]
    found = meanwhile.continued()
    assert found.drafts[0] is None and found.drafts[1].continuation.token == 7
    assert found.drafts[2] is packed.drafts[2] and found.drafts[2].continuation is None
    assert RunAhead(None, packed).work is None
    chunk = pack([reading], [None], max_chunk=1)
    assert RunAhead(ahead, chunk).work is None and RunAhead(None, chunk).continued().drafts == (None,)


def test_a_pass_may_be_judged_without_running_ahead():
    engine = engine_of(TableTarget())
    seqs, calls = sequences(engine), []
    drafter = engine.parts.drafter
    drafter.traits = type(drafter.traits)(ahead=lambda seqs, drafts, is_over: calls.append(1) or [None] * len(seqs))
    parts = Parts(target=engine.parts.target, drafter=drafter, verifier=ReferenceRule(), policy=engine.parts.policy)
    decisions = decide(seqs, parts)
    for is_whole, expected in ((False, 0), (True, 1)):
        judge(seqs, replace(decisions, is_whole=is_whole), parts)
        assert len(calls) == expected


def test_greedy_rows_are_one_hot_unless_a_rule_asks_for_more():
    engine = engine_of(TableTarget())
    seqs = sequences(engine)
    packed = pack(seqs, [chain([seq.pending]) for seq in seqs])
    logits = engine.parts.target.forward(packed).logits
    hard, soft = target_distributions(packed, logits), target_distributions(packed, logits, soft=True)
    assert torch.equal(hard.max(-1).values, torch.ones(2, dtype=hard.dtype))
    assert torch.allclose(soft, torch.softmax(logits, -1))


def test_a_prompt_chunk_beside_a_round_gets_no_distribution():
    engine = engine_of(TableTarget())
    reading = engine.prepare(Request(prompt_token_ids=(3, 1, 2), params=SamplingParams(temperature=1.0)))
    ready = sequences(engine, temperature=1.0)[0]
    packed = pack([reading, ready], [None, chain([2, 4])], max_chunk=1)
    engine.parts.target.begin(reading)
    logits = engine.parts.target.forward(packed).logits
    assert torch.allclose(target_distributions(packed, logits), torch.softmax(logits, -1))
    chunk = pack([reading], [None], max_chunk=1)
    nothing = logits[:0]
    assert target_distributions(chunk, nothing) is nothing


def test_on_a_device_greedy_rows_are_not_looked_at(monkeypatch):
    """A tensor without storage stands for a GPU's: a look at its numbers fails."""
    engine = engine_of(TableTarget())
    seqs = sequences(engine)
    packed = pack(seqs, [chain([seq.pending]) for seq in seqs])
    monkeypatch.setattr(distributions, "warp_nodes", None)
    honest, told = distributions.poisoned_one_hot, []
    monkeypatch.setattr(distributions, "poisoned_one_hot", lambda *given: told.append(given[1].shape) or honest(*given))
    found = target_distributions(packed, torch.empty(2, 11, device="meta"))
    assert found.device.type == "meta" and found.shape == (2, 11)
    assert told == [(2,)], "the largest of each row"


def test_every_sequence_is_its_own_place_in_the_batch():
    """`num_replayed` of the target's answer goes to the sequence that it names."""
    table = TableTarget()
    engine = engine_of(table)
    seqs, honest = sequences(engine), table.forward

    def forward(packed, taps=()):
        out = honest(packed, taps)
        return TargetOutput(logits=out.logits, hidden=out.hidden, replayed={1: 5})

    table.forward = forward
    assert [event.num_replayed for event in step(seqs, engine.parts)] == [None, 5]
