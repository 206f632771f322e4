"""The loop: it learns, it saves bit for bit, it resumes as if nothing had happened, it ends when asked to."""

import json
import math
import os
import signal
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from lab.zoo.pretrain import NextToken
from outdraft.drafters.early_exit.learn import EarlyExitLearning, new
from outdraft.learn.save import load_state
from outdraft.options.errors import ConfigError, DecodingError
from outdraft.training.config import Schedule
from outdraft.training.loop import BEST, CHECKPOINT, Loop
from outdraft.training.objective import Evaluation
from outdraft.training.team import Team
from tests.training.toys import (
    VOCAB,
    Lessons,
    draft_loop,
    draft_objective,
    rows,
    toy_config,
    toy_decoder,
    toy_loop,
    toy_sampler,
)


def loss_of(objective) -> float:
    with torch.no_grad():
        return float(objective.loss(rows(16))[0])


def weights_of(loop):
    return dict(loop.objective.module.named_parameters())


def same(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        assert torch.equal(one, theirs[name]), name


def test_fifty_steps_lower_the_loss(tmp_path):
    objective = NextToken(toy_decoder())
    before = loss_of(objective)
    toy_loop(objective, tmp_path).run()
    assert loss_of(objective) < before - 1.0


def test_a_checkpoint_reloads_bit_for_bit(tmp_path):
    loop = toy_loop(NextToken(toy_decoder()), tmp_path, steps=5)
    loop.run()
    other = toy_loop(NextToken(toy_decoder(9)), tmp_path, steps=5)
    other.resume()
    assert other.step == 5
    same(weights_of(loop), weights_of(other))
    for ours, saved in zip(loop.optimizer.state(), other.optimizer.state(), strict=True):
        assert ours["state"].keys() == saved["state"].keys()
        for key, one in ours["state"].items():
            for name, value in one.items():
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(saved["state"][key][name]))
                assert not torch.is_tensor(value) or value.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path, dtype):
    whole = toy_loop(NextToken(toy_decoder()), tmp_path / "whole", steps=12, dtype=dtype)
    whole.run()
    for until in (5, 6, 11, 12):
        part = toy_loop(NextToken(toy_decoder(9 if until > 5 else 0)), tmp_path / "parts", steps=12, dtype=dtype)
        if until > 5:
            part.resume()
        part.run(until=until)
    same(weights_of(whole), weights_of(part))


def test_only_what_is_trained_is_saved(tmp_path):
    target = toy_decoder(1).requires_grad_(False)
    learner = new(EarlyExitLearning(exit_layer=1), target, 0)
    draft_loop(draft_objective(learner, target), tmp_path, steps=2).run()
    assert load_state(tmp_path / CHECKPOINT).weights.keys() == {"norm.weight", "up.weight", "down.weight"}


def test_the_finish_file_starts_the_decay(tmp_path):
    loop = toy_loop(NextToken(toy_decoder()), tmp_path, steps=1000, decay_share=0.5)
    loop.run(until=6)
    (tmp_path / "finish").touch()
    loop.run()
    assert (loop.schedule.decay_at, loop.step) == (6, 9)
    again = toy_loop(NextToken(toy_decoder()), tmp_path, steps=1000, decay_share=0.5)
    again.resume()
    assert (again.schedule.decay_at, again.schedule.end) == (6, 9)


def test_the_schedule_warms_up_stays_and_decays_to_zero():
    schedule = Schedule(toy_config(steps=120, warmup=10, decay_share=0.2))
    assert schedule.factor(0) == 0.1
    assert schedule.factor(50) == 1.0
    assert schedule.decay_at == 100
    assert 0 < schedule.factor(119) < schedule.factor(110) < 1
    schedule.begin_decay(50)
    assert (schedule.decay_at, schedule.end) == (50, 60)


def test_a_decay_within_the_warm_up_begins_where_that_has_come_to():
    """A short run, and one that is asked early to finish: the rate rises and falls once, and never jumps."""
    short = Schedule(toy_config(steps=14, warmup=20, decay_share=0.3))
    finished = Schedule(toy_config(steps=1000, warmup=20, decay_share=0.5))
    finished.begin_decay(5)
    for schedule, peak, steps in ((short, 0.6, 14), (finished, 0.3, 7)):
        factors = [schedule.factor(step) for step in range(steps)]
        assert schedule.end == steps and max(factors) == pytest.approx(peak) == factors[schedule.decay_at]
        assert factors[: schedule.decay_at + 1] == sorted(factors[: schedule.decay_at + 1])
        assert factors[schedule.decay_at :] == sorted(factors[schedule.decay_at :], reverse=True)
    assert [round(short.factor(step), 2) for step in range(9, 14)] == [0.5, 0.55, 0.6, 0.4, 0.2]


def spend(schedule: Schedule, pace: list[float], first: float = 5.0) -> tuple[float, list[float]]:
    """Seconds until it ends, where the first step takes long and later ones take `pace` in turn; and the factors."""
    spent, factors, step = 0.0, [], 0
    while not (schedule.keep_time(step, spent), step >= schedule.end)[1]:
        factors.append(schedule.factor(step))
        spent += pace[step % len(pace)] if step else first
        step += 1
    return spent, factors


@pytest.mark.parametrize("pace", [[0.1], [0.05, 0.2, 0.1], [0.2] * 200 + [0.1] * 10000])
def test_a_run_of_so_many_seconds_decays_to_zero_by_then(pace):
    schedule = Schedule(toy_config(steps=1 << 30, seconds=60.0, warmup=5, decay_share=1.0))
    spent, factors = spend(schedule, pace)
    assert abs(spent - 60) < 0.5 and factors[20] == 1.0 and factors[-1] < 0.02
    assert 0.35 < schedule.decay_at / len(factors) < 0.6
    assert all(after < before + 0.05 for before, after in pairwise(factors[schedule.decay_at :]))


def test_steps_are_a_ceiling_beside_seconds_and_an_early_end_is_kept():
    capped = Schedule(toy_config(steps=40, seconds=60.0, warmup=5))
    assert len(spend(capped, [0.1])[1]) == 40
    finished = Schedule(toy_config(steps=1 << 30, seconds=60.0, warmup=5, decay_share=0.5))
    finished.keep_time(10, 6.0)
    finished.begin_decay(20)
    finished.keep_time(21, 8.0)
    finished.keep_time(22, 9.0)
    assert finished.end == 30
    with pytest.raises(ConfigError, match=r"seconds=60, decay_at=100: .* leave decay_at out"):
        toy_config(steps=1000, seconds=60.0, decay_at=100)


def test_a_loop_ends_when_its_seconds_are_spent(tmp_path):
    loop = toy_loop(NextToken(toy_decoder()), tmp_path, steps=1 << 30, seconds=0.5)
    loop.run()
    assert 2 <= loop.step < 10000 and loop.schedule.end == loop.step
    assert loop.progress.seconds > 0.4


def test_a_decay_that_was_asked_for_is_resumed_with_its_end(tmp_path):
    """The seconds that are left are for a run without such a file or signal."""
    loop = toy_loop(NextToken(toy_decoder()), tmp_path, steps=1 << 30, seconds=600.0, decay_share=0.5)
    loop.run(until=6)
    (tmp_path / "finish").touch()
    loop.run(until=7)
    again = toy_loop(NextToken(toy_decoder()), tmp_path, steps=1 << 30, seconds=600.0, decay_share=0.5)
    again.resume()
    again.run(until=20)
    assert (again.schedule.decay_at, again.schedule.end, again.step) == (6, 9, 9)


def test_a_decay_that_would_end_behind_the_last_step_is_refused():
    assert Schedule(toy_config(steps=130, decay_at=100, decay_share=0.3)).end == 130
    for steps, at, end in ((10, 100, 130), (129, 100, 130), (10, 10, 13)):
        with pytest.raises(ConfigError, match=f"decay_at={at} .* would end at step {end}, behind steps={steps}: let"):
            toy_config(steps=steps, decay_at=at, decay_share=0.3)


def scripted(*scores):
    found = iter(scores)
    return lambda: Evaluation(score=next(found), line="", numbers={"told": 1})


def test_the_best_weights_are_kept_and_patience_ends_it(tmp_path):
    loop = toy_loop(
        NextToken(toy_decoder()), tmp_path, evaluate=scripted(1.0, 3.0, 2.0, 2.5, 9.0), eval_every=2, patience=2
    )
    seen = {}
    honest = loop.evaluate

    def evaluate():
        seen[loop.step] = {name: one.detach().clone() for name, one in weights_of(loop).items()}
        return honest()

    loop.evaluate = evaluate
    loop.run()
    assert loop.step == 8, "two evaluations in a row were no better than the one at step 4"
    assert loop.progress.best == 3.0
    loop.take_best()
    same(weights_of(loop), seen[4])
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(one["step"], one["score"], one["told"]) for one in lines] == [
        (2, 1.0, 1),
        (4, 3.0, 1),
        (6, 2.0, 1),
        (8, 2.5, 1),
    ]
    other = toy_loop(NextToken(toy_decoder()), tmp_path, eval_every=2, patience=2)
    other.resume()
    assert (other.progress.best, other.progress.since_best) == (3.0, 2)
    assert (tmp_path / BEST).exists()


def test_a_score_that_is_no_number_is_never_the_best(tmp_path):
    loop = toy_loop(
        NextToken(toy_decoder()), tmp_path, evaluate=scripted(math.nan, 1.0, math.nan), eval_every=1, steps=3
    )
    loop.run()
    assert loop.progress.best == 1.0 and load_state(tmp_path / BEST).progress.step == 2


def test_a_signal_in_the_last_step_is_heard(tmp_path):
    """What follows the training may take long, and a user who stops it then would wait for it."""

    class Stopping(NextToken):
        def total(self, rows):
            os.kill(os.getpid(), signal.SIGINT)
            return super().total(rows)

    loop = Loop(
        Stopping(toy_decoder()), toy_sampler(), toy_config(steps=1), tmp_path, lambda line: None, vocab_size=VOCAB
    )
    loop.run()
    assert loop.step == 1 and loop.interrupted
    again = toy_loop(NextToken(toy_decoder()), tmp_path, steps=1)
    again.resume()
    again.run()
    assert again.step == 1 and not again.interrupted


def test_a_step_whose_gradient_is_no_number_is_left_out(tmp_path):
    class Broken(NextToken):
        def total(self, rows):
            return super().total(rows) * torch.nan

    loop = toy_loop(Broken(toy_decoder()), tmp_path, steps=40)
    before = {name: one.detach().clone() for name, one in weights_of(loop).items()}
    loop.run(until=2)
    same(before, weights_of(loop))
    with pytest.raises(DecodingError, match="20 steps in a row"):
        loop.run()
    for until in (2, None):
        short = toy_loop(Broken(toy_decoder()), tmp_path / "short", steps=3)
        if until is None:
            short.resume()
        with nullcontext() if until else pytest.raises(DecodingError, match="in any of 3 steps: lower the rates"):
            short.run(until=until)


def test_there_must_be_something_to_resume(tmp_path):
    loop = toy_loop(NextToken(toy_decoder()), tmp_path)
    with pytest.raises(ConfigError, match="nothing to resume"):
        loop.resume()
    torch.save({"optimizer": {}, "progress": {}}, tmp_path / CHECKPOINT)
    with pytest.raises(ConfigError, match="this version"):
        loop.resume()


def test_only_the_same_run_goes_on(tmp_path):
    toy_loop(NextToken(toy_decoder()), tmp_path, about={"seed": 1}, steps=2).run()
    with pytest.raises(ConfigError, match="holds a run with seed=1, not 2"):
        toy_loop(NextToken(toy_decoder()), tmp_path, about={"seed": 2}).resume()
    with pytest.raises(ConfigError, match="another network"):
        toy_loop(NextToken(toy_decoder(layers=2)), tmp_path, about={"seed": 1}).resume()


def test_what_counts_weighs_the_same_in_whichever_pass_it_stands(tmp_path):
    """Passes whose rows count differently many tokens: their sum is one pass over all of them."""

    class Uneven(Lessons):
        def rows(self, step, first, count, length):
            made = super().rows(step, first, count, length)
            number = torch.arange(first, first + count)[:, None]
            return replace(made, counts=torch.arange(length - 1)[None] < 1 + 5 * number)

    found, losses = [], []
    for name, micro in (("whole", 64), ("parts", 16)):
        target = toy_decoder(1).requires_grad_(False)
        learner = new(EarlyExitLearning(exit_layer=1), target, 0)
        data = Uneven(toy_sampler())
        loop = toy_loop(
            draft_objective(learner, target), tmp_path / name, data=data, batch_tokens=64, micro_tokens=micro
        )
        losses.append(loop._gradients(0))
        found.append({name: one.grad.clone() for name, one in weights_of(loop).items() if one.grad is not None})
        loop.optimizer.clear()
        loop.objective.loss(data.rows(0, 0, 4, 17))[0].backward()
        for key, one in found[-1].items():
            torch.testing.assert_close(one, weights_of(loop)[key].grad, atol=1e-7, rtol=1e-4)
        assert int(data.rows(0, 0, 4, 17).counts.sum()) == 1 + 6 + 11 + 16
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert found[0] and any(float(one.abs().max()) > 1e-4 for one in found[0].values())
    for name, one in found[0].items():
        torch.testing.assert_close(one, found[1][name], atol=1e-7, rtol=1e-4)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, None),
        ({"batch_tokens": 80}, "batch_tokens=80 is 5 rows of seq_len=16, which 2 workers .*: take batch_tokens=96"),
        ({"final_seq_len": 256}, "batch_tokens=256 is 1 rows of final_seq_len=256, .*: take batch_tokens=512"),
    ],
)
def test_a_batch_that_workers_cannot_share_is_refused(tmp_path, monkeypatch, changes, says):
    """Two of five rows each would leave one out of every step."""
    monkeypatch.setattr("outdraft.training.loop.DistributedDataParallel", lambda loss, **settings: loss)
    with pytest.raises(ConfigError, match=says) if says else nullcontext():
        Loop(
            NextToken(toy_decoder()),
            toy_sampler(),
            toy_config(**changes),
            tmp_path,
            lambda line: None,
            team=Team(size=2),
            listens=False,
        )


def test_a_run_that_ended_stays_ended(tmp_path):
    loop = toy_loop(NextToken(toy_decoder()), tmp_path, evaluate=scripted(2.0, 1.0), eval_every=2, patience=1)
    loop.run()
    assert loop.step == 4 and loop.evaluate() is None, "nothing is judged twice"
    again = toy_loop(NextToken(toy_decoder()), tmp_path, evaluate=scripted(), eval_every=2, patience=1)
    again.resume()
    again.run()
    assert again.step == 4


def test_rows_weigh_the_same_however_they_are_cut_and_none_is_taken_twice(tmp_path):
    """The last pass of a step is shorter where the batch does not divide."""
    weights = []
    for name, micro in (("whole", 80), ("parts", 48)):  # 5 rows of 16 at once; 3 and 2
        loop = toy_loop(NextToken(toy_decoder()), tmp_path / name, steps=3, batch_tokens=80, micro_tokens=micro)
        loop.run()
        weights.append(weights_of(loop))
    for name, one in weights[0].items():
        torch.testing.assert_close(one, weights[1][name], atol=1e-3, rtol=1e-2)


def test_numbers_too_small_for_the_processor_are_zero_while_it_learns(tmp_path):
    """They would slow every product down; the caller's setting is as it was afterwards, also after an error."""
    tiny, seen = torch.tensor(1e-39), []

    class Watching(NextToken):
        def loss(self, *given):
            seen.append(float(tiny * 1.0))
            if len(seen) > 3:
                raise KeyboardInterrupt
            return super().loss(*given)

    loop = toy_loop(Watching(toy_decoder()), tmp_path, steps=9, batch_tokens=128)
    with pytest.raises(KeyboardInterrupt):
        loop.run()
    assert seen == [0.0] * 4
    assert float(tiny * 1.0) > 0
    torch.set_flush_denormal(True)
    try:
        toy_loop(NextToken(toy_decoder()), tmp_path / "again", steps=1).run()
        assert float(tiny * 1.0) == 0
    finally:
        torch.set_flush_denormal(False)
