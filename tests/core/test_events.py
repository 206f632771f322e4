"""Times of a step: each event has its sequence's share, together they are the step's."""

from outdraft.core.events import StepTimes, step_times
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.decode.parts import Parts
from outdraft.engine.loop import Engine
from tests.helpers.fakes import ConstantPolicy, ReferenceRule, TableTarget, liar


def test_the_shares_of_a_step_add_up_to_it(monkeypatch):
    target = TableTarget()
    policy = ConstantPolicy(Budget(depth=2))
    engine = Engine(Parts(target=target, drafter=liar(target.next_logits), verifier=ReferenceRule(), policy=policy))
    for first in range(4):
        engine.add(Request(prompt_token_ids=(first,)))
    readings = iter([0.0, 1.0, 1.0, 1.0, 4.0, 6.0])  # began, decided, began, packed, passed, done
    monkeypatch.setattr("outdraft.decode.step.perf_counter", lambda: next(readings))
    events = engine.step()
    assert len(events) == 4
    assert {event.times for event in events} == {StepTimes(draft=1 / 4, target=3 / 4, rest=2 / 4, num_texts=4)}
    assert step_times(events) == StepTimes(draft=1.0, target=3.0, rest=2.0)
