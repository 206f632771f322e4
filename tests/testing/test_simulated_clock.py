"""Overlapped against serial time of the same rounds, and the formulas of the two papers against the clock."""

import pytest
import torch

from lab.analysis.formulas import asynchronous_speedup
from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.target import Needs
from outdraft.decode.parts import Parts
from outdraft.drafters import pearl, run_ahead, ssd
from outdraft.engine.loop import Engine
from outdraft.options.params import SamplingParams
from outdraft.verify.auto import Auto
from tests.helpers.fakes import ConstantPolicy, TableTarget
from tests.helpers.simulated_clock import Costs, CountedSteps, SimulatedClock

LENGTH = 120


class Knower:
    """Chains of what the target will write, but for some positions; there its second guess is right or none is."""

    needs = Needs()
    traits = Traits(rewinds=True)

    def __init__(self, table, wrong, second=lambda position: False):
        self.table, self.wrong, self.second = table, wrong, second

    def begin(self, seqs): ...
    def observe(self, seen): ...
    def end(self, seqs): ...

    def propose(self, seqs, budgets):
        return [self._tree(seq, budget.depth) for seq, budget in zip(seqs, budgets, strict=True)]

    def _tree(self, seq, depth):
        tokens, parents, text, above = [seq.pending], [-1], list(seq.tokens), 0
        for _ in range(depth):
            right = int(self.table.next_logits(text).argmax())
            first = (right + 1) % 11 if self.wrong(len(text)) else right
            other = right if self.wrong(len(text)) and self.second(len(text)) else (right + 2) % 11
            tokens += [first, other]
            parents += [above, above]
            above = len(tokens) - 2
            text.append(first)
        return Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents))


class ClockedTarget(TableTarget):
    """Tells the clock of its passes."""

    clock = None

    def forward(self, packed, taps=()):
        self.clock.see_pass(len(packed.tokens))
        return super().forward(packed, taps)


def clocked(make, costs, *, depth=4, wrong=lambda position: False, second=lambda position: False):
    """A run under the clock: tokens of each round, the clock, the drafter."""
    clock = SimulatedClock(costs)
    target = ClockedTarget(max_len=512)
    target.clock = clock
    drafter = make(CountedSteps(Knower(target, wrong, second), clock))
    parts = Parts(
        target=target, drafter=drafter, verifier=Auto(), policy=ConstantPolicy(Budget(depth=depth)), executor=clock
    )
    engine = Engine(parts)
    engine.add(Request(prompt_token_ids=(3,), params=SamplingParams(max_tokens=LENGTH)))
    tokens = []
    while engine.has_work:
        tokens += [len(event.tokens) for event in engine.step()]
    assert sum(tokens) == LENGTH
    return tokens, clock, drafter


def make_ssd(inner):
    return ssd.SsdDrafter(ssd.SsdOptions(outcomes=6), inner)


@pytest.mark.parametrize("step", [0.05, 0.2, 0.5])
def test_pearl_costs_the_longer_stage_where_the_serial_loop_costs_the_sum(step):
    """Every guess right: k + 1 tokens a round, drafted while the round before was judged."""
    tokens, clock, _ = clocked(pearl.over, Costs(draft_step=step))
    steady = clock.rounds[2:-2]
    assert set(tokens[2:-2]) == {5} and {(one.before, one.beside) for one in steady} == {(0, 5)}
    overlapped = sum(one.overlapped(clock.costs) for one in steady) / len(steady)
    assert overlapped == pytest.approx(max(1, 5 * step))
    serial = sum(one.serial(clock.costs) for one in steady) / len(steady)
    assert serial == pytest.approx(1 + 5 * step)


def test_pearl_never_drafts_while_the_target_waits_and_a_wrong_token_costs_one_round():
    _, clock, _ = clocked(pearl.over, Costs(draft_step=0.1), wrong=lambda position: position % 10 == 9)
    assert all(one.before == 0 for one in clock.rounds)
    empty = [one for one in clock.rounds[2:] if one.rows == 1]
    assert len(empty) == pytest.approx(LENGTH / 10, abs=1)  # a pass of the pending token alone after each wrong one
    assert clock.overlapped_time() < clock.serial_time()


def test_run_ahead_fills_the_pass_and_no_more():
    costs = Costs(draft_step=0.1, read=1.6)  # sixteen steps while the weights stream
    _, clock, _ = clocked(
        lambda inner: run_ahead.over(run_ahead.RunAheadOptions(piece=2, window=64), inner), costs, depth=16
    )
    steady = clock.rounds[2:-4]
    assert {one.beside for one in steady} == {16}
    assert clock.overlapped_time() < 0.55 * clock.serial_time()
    _, clock, _ = clocked(
        lambda inner: run_ahead.over(run_ahead.RunAheadOptions(piece=2, window=6), inner), costs, depth=16
    )
    assert max(one.beside for one in clock.rounds) <= 7  # the window is full, but for what became text


def test_on_one_device_overlap_hides_drafting_behind_reading_only():
    rounds = clocked(pearl.over, Costs(draft_step=0.1))[1].rounds
    waits = Costs(draft_step=0.1, compute=lambda rows: 0.2, read=1.0, shared=True)
    computes = Costs(draft_step=0.1, compute=lambda rows: 1.0, shared=True)
    assert sum(one.overlapped(waits) for one in rounds) == pytest.approx(len(rounds) * 1.0)
    assert sum(one.overlapped(computes) for one in rounds) == pytest.approx(sum(one.serial(computes) for one in rounds))


@pytest.mark.parametrize("step", [0.02, 0.08])
@pytest.mark.parametrize("every", [3, 5, 10**6])
def test_ssd_takes_what_the_formula_says(step, every):
    """Positions that are wrong now and then, some with the right token as the second guess: hits and misses."""
    tokens, clock, drafter = clocked(
        make_ssd,
        Costs(draft_step=step),
        wrong=lambda position: position % every == every - 1,
        second=lambda position: position % 2 == 0,
    )
    hits = [one.before == 0 for one in clock.rounds]
    assert sum(hits) == drafter.num_hits and drafter.num_rounds == len(hits) - 1  # all but the first were prepared for
    hit_rate = sum(hits) / len(hits)
    missed = [count for count, hit in zip(tokens, hits, strict=True) if not hit]
    ready = [count for count, hit in zip(tokens, hits, strict=True) if hit]
    backup = sum(one.before for one in clock.rounds) * step / len(missed)
    ahead = [max(1.0, one.beside * step) for one in clock.rounds]
    expected = asynchronous_speedup(
        hit_rate,
        hit_tokens=sum(ready) / max(1, len(ready)),
        miss_tokens=sum(missed) / len(missed),
        draft_time=sum(ahead) / len(ahead),
        backup_time=backup,
    )
    assert LENGTH / clock.overlapped_time() == pytest.approx(expected)
    if every > LENGTH:
        assert len(missed) == 1  # the first round
    elif step == 0.02:  # all six outcomes are prepared within the pass
        assert 0.3 < hit_rate < 0.7


def test_a_large_guess_pays_for_its_reading():
    """SpecExec's claim: where reading the weights takes 50 draft steps, deep guesses bring more than five times plain
    streaming, though every seventeenth token is not among them."""
    costs = Costs(draft_step=1.0, compute=lambda rows: 0.1 * rows, read=50.0, shared=True)
    tokens, clock, _ = clocked(lambda inner: inner, costs, depth=16, wrong=lambda position: position % 17 == 16)
    plain = LENGTH * costs.pass_time(1)
    assert plain / clock.serial_time() > 5
    taken = [one.before for one in clock.rounds]
    assert max(taken) <= 16 and sum(tokens) / len(tokens) > 6.5
