"""What a run tells: the first worker alone, means since the last evaluation, a pace over all steps."""

import json
from math import inf, nan

import pytest
import torch

from lab.zoo.pretrain import NextToken
from outdraft.training.journal import LOG, RunJournal
from outdraft.training.objective import Evaluation
from tests.training.toys import toy_decoder, toy_loop


def new(place, *, leads=True):
    said, shown = [], []
    journal = RunJournal(place, said.append, leads=leads, board=lambda step, record: shown.append((step, record)))
    return journal, said, shown


def test_the_mean_loss_begins_anew_with_every_evaluation_and_the_pace_does_not(tmp_path):
    journal, said, shown = new(tmp_path)
    journal.evaluated(0, 10, "untrained", {"step": 0})
    journal.add(4.0, 1.0, 100)
    journal.add(2.0, 1.0, 100)
    journal.say_step(2, 10)
    journal.evaluated(2, 10, "better", {"step": 2, "score": 1.5})
    assert journal.running(8) == {}
    journal.add(1.0, 2.0, 100)
    assert journal.running(7) == {"loss": 1.0, "tokens_a_second": 75.0, "seconds_left": 700 / 75}
    assert said == [
        "step 0 untrained",
        "step 2/10 loss 3.0000; 100 tokens/s, 0.1 min left",
        "step 2 better; 0.1 min left",
    ]
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    first, second = {"step": 0}, {"step": 2, "score": 1.5, "loss": 3.0, "tokens_a_second": 100.0, "seconds_left": 8.0}
    assert lines == [first, second] and shown == [(0, first), (2, second)]


def test_an_end_that_is_not_known_yet_is_left_out(tmp_path):
    journal, said, _ = new(tmp_path)
    journal.add(4.0, 1.0, 100)
    journal.say_step(1, 1 << 30)
    journal.evaluated(1, 1 << 30, "better", {"step": 1})
    assert said == ["step 1 loss 4.0000; 100 tokens/s", "step 1 better"]


def test_a_number_that_json_does_not_have_is_null(tmp_path):
    journal, _, shown = new(tmp_path)
    journal.add(inf, 1.0, 100)
    journal.evaluated(1, 2, "", {"step": 1, "score": -inf, "conditional": (0.5, nan)})
    said = json.loads((tmp_path / LOG).read_text(), parse_constant=pytest.fail)
    assert (said["loss"], said["score"], said["conditional"]) == (None, None, [0.5, None]) and shown == [(1, said)]


def test_only_the_first_worker_tells(tmp_path):
    journal, said, shown = new(tmp_path, leads=False)
    journal.add(4.0, 1.0, 100)
    journal.say_step(1, 10)
    journal.evaluated(1, 10, "better", {"step": 1})
    assert not said and not shown and not (tmp_path / LOG).exists()
    assert journal.running(9) == {}


def test_steps_that_come_again_stand_in_the_log_once(tmp_path):
    """A run was killed behind its last checkpoint, at step 2, while it wrote a line; and it goes on from there."""
    journal, _, _ = new(tmp_path)
    for step in (0, 2, 4, 6):
        journal.evaluated(step, 10, "", {"step": step, "score": 1.0})
    with (tmp_path / LOG).open("a") as log:
        log.write('{"step": 8, "sc')
    journal, _, _ = new(tmp_path)
    for step in (4, 6):
        journal.evaluated(step, 10, "", {"step": step, "score": 2.0})
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [(one["step"], one["score"]) for one in lines] == [(0, 1.0), (2, 1.0), (4, 2.0), (6, 2.0)]


def test_evaluations_say_how_many_steps_were_left_out(tmp_path):
    class Sometimes(NextToken):
        def total(self, rows):
            return super().total(rows) * (torch.nan if loop.step in (0, 3) else 1.0)

    said = []
    loop = toy_loop(
        Sometimes(toy_decoder()), tmp_path, steps=6, eval_every=2, evaluate=lambda: Evaluation(score=0.0, line="")
    )
    loop.journal.report = said.append
    loop.run()
    assert [line.partition("; ")[2].partition(";")[0] for line in said] == [
        f"{n} steps left out, whose gradient was not finite" for n in (1, 2, 2)
    ]
    lines = [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()]
    assert [(one["skipped"], one["loss"] is None) for one in lines] == [(1, True), (2, True), (2, False)]
