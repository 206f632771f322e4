"""The loop's own edges: what it drops, and what it refuses before any work."""

from math import inf

import pytest

from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.engine.loop import Engine
from outdraft.engine.scheduler.scheduler import SchedulerSettings
from outdraft.options.errors import RequestError
from outdraft.options.params import SamplingParams
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.subject import Subject, run
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget, oracle


@pytest.fixture
def engine(tmp_path):
    return Subject(DrafterRow(drafter="none"), tmp_path).engine()


def request(*ids, max_tokens=8, **params):
    return Request(prompt_token_ids=ids or (5, 6), params=SamplingParams(max_tokens=max_tokens, **params))


@pytest.mark.logs_faults
@pytest.mark.parametrize("error", [RuntimeError("odd"), SystemExit("bye")])
def test_every_request_is_dropped_though_one_cannot_be_cleared_away(engine, monkeypatch, error):
    seqs = [engine.add(request()) for _ in range(3)]
    engine.step()
    retire, tried = engine._retire, []

    def broken(seq):
        tried.append(seq)
        retire(seq)
        if seq in (seqs[0], waiting):
            raise error

    monkeypatch.setattr(engine, "_retire", broken)
    waiting = engine.add(request())
    engine.abandon()
    assert tried == [waiting, *seqs] and not engine.has_work


def test_ids_are_the_vocabularys(engine):
    assert all(outcome.seq.finish_reason == "length" for outcome in run(engine, [request(0), request(60)]))
    for wrong in (-1, 61):
        for bad in (request(5, wrong), request(logit_bias={wrong: 1.0}), request(stop_token_ids=(wrong,))):
            with pytest.raises(RequestError, match=f"{wrong}.* outside the vocabulary of 61"):
                engine.add(bad)
    assert not engine.has_work


def test_a_prompt_leaves_room_for_one_token(tmp_path):
    engine = Subject(DrafterRow(drafter="none"), tmp_path).engine(max_len=4)
    (outcome,) = run(engine, [request(5, 6, 7)])
    assert (outcome.seq.finish_reason, outcome.seq.num_output) == ("length", 1)
    with pytest.raises(RequestError, match="has 4 tokens, the context holds 4"):
        engine.add(request(5, 6, 7, 8))


def test_one_token_may_be_left_and_none_may_not(engine):
    all_but = {token: -inf for token in range(61) if token != 17}
    (outcome,) = run(engine, [request(logit_bias=all_but)])
    assert outcome.seq.output == [17] * 8
    with pytest.raises(RequestError, match="logit_bias forbids all 61 tokens"):
        engine.add(request(logit_bias={**all_but, 17: -inf}))
    with pytest.raises(RequestError, match="min_tokens=1 forbids every token that may be written"):
        engine.add(request(logit_bias=all_but, stop_token_ids=(17,), min_tokens=1))
    (outcome,) = run(engine, [request(logit_bias=all_but, stop_token_ids=(17,))])
    assert outcome.seq.finish_reason == "stop"
    assert run(engine, [request(logit_bias=dict.fromkeys(range(61), -1.0))])[0].seq.finish_reason == "length"


def test_who_ends_while_waiting_is_of_the_weights_of_the_moment():
    table, now = TableTarget(), [0.0]
    parts = Parts(
        target=table,
        drafter=oracle(table.next_logits),
        verifier=ReferenceRule(),
        policy=ConstantPolicy(Budget(depth=2)),
    )
    engine = Engine(parts, variant="int4", clock=lambda: now[0], scheduling=SchedulerSettings(max_num_seqs=1))
    for timeout in (None, 5.0):
        engine.enqueue(
            engine.prepare(Request(prompt_token_ids=(3, 1), params=SamplingParams(max_tokens=40), timeout=timeout))
        )
    engine.step()
    now[0] = 6.0
    (late,) = [event for event in engine.step() if event.finish_reason == "timeout"]
    assert late.variant == "int4"


class Sparing:
    """Notes whom it has met and who is not over."""

    def __init__(self):
        self.met = []

    def plan(self, seqs):
        return [Budget(depth=0)] * len(seqs)

    def update(self, events):
        pass

    def spare(self, seq, crowd):
        self.met.append(seq.id)
        return frozenset()

    def end(self, seqs):
        self.met = [one for one in self.met if one not in {seq.id for seq in seqs}]


@pytest.mark.logs_faults
def test_who_finds_no_place_leaves_nothing_with_the_policy(tmp_path):
    parts = Subject(DrafterRow(drafter="ngram"), tmp_path).engine().parts

    class Refusing(TableTarget):
        def begin(self, seq):
            if seq.prompt_len == 3:
                raise RequestError("odd vectors")
            return super().begin(seq)

    policy = Sparing()
    engine = Engine(
        Parts(target=Refusing(), drafter=parts.drafter, verifier=ReferenceRule(), policy=policy), isolates=True
    )
    refused, seq = engine.add(request(1, 2, 3)), engine.add(request(1, 2))
    engine.step()
    assert refused.finish_reason == "error" and policy.met == [seq.id]
    while engine.has_work:
        engine.step()
    assert not policy.met
