"""What a round costs here, the speed-up that follows, and the numbers of a run in its log and on a board."""

import json
import sys
import types

import pytest
import torch

from lab.zoo.pretrain import NextToken
from outdraft.analysis.theory import expected_speedup, expected_tokens
from outdraft.core.learner_registry import find_learner
from outdraft.engine.llm import LLM
from outdraft.models.files.load import save_model
from outdraft.nn.linear import LinearMap
from outdraft.options.errors import ConfigError
from outdraft.options.params import SamplingParams
from outdraft.testing.tiny import tiny_model
from outdraft.training.costs import RoundCosts, measure_costs, served
from outdraft.training.journal import open_board
from outdraft.training.lessons import Teacher
from outdraft.training.objective import Evaluation
from outdraft.training.packing import PackedRows
from tests.training.toys import toy_decoder, toy_loop


def test_the_speed_up_is_leviathans_formula():
    costs = RoundCosts(plain=2.0, verify=3.0, draft=1.0, depth=4)
    assert costs.speedup(2.0) == 1.0 and costs.speedup(3.0) == 1.5
    alpha, k = 0.7, 4
    theory = expected_speedup(alpha, k, draft_cost=0.125, pass_cost=lambda rows: 1.5 if rows > 1 else 1.0)
    assert costs.speedup(expected_tokens(alpha, k)) == pytest.approx(theory)


@pytest.mark.parametrize(
    ("kind", "options", "dtype"),
    [("draft_model", {}, torch.float32), ("medusa", {}, torch.bfloat16), ("medusa", {"joint": True}, torch.float32)],
)
def test_costs_are_measured_on_the_engine_with_the_target_that_is_there(tmp_path, monkeypatch, kind, options, dtype):
    target = tiny_model(vocab=61, layers=2, seed=1, dtype=dtype)
    save_model(target, tmp_path)
    method = find_learner(kind)
    learner = method.new(method.options(**options), target, 0)
    teacher = Teacher(target, learner.taps)
    ids = torch.arange(24).view(2, 12)
    rows = PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=torch.ones(2, 11, dtype=torch.bool))
    before, kept = teacher.lesson(rows).states, {name: one.data_ptr() for name, one in target.named_parameters()}
    monkeypatch.setattr("outdraft.engine.assembly.assemble.read_network", None)  # no file is read for another one
    found = measure_costs(kind, method, learner, target, tmp_path, depth=3, prompts=[[1, 2, 3]], tokens=12)
    assert kept == {name: one.data_ptr() for name, one in target.named_parameters()}
    assert torch.equal(teacher.lesson(rows).states, before) and not target.exact
    assert found.depth == 3
    assert min(found.draft, found.plain, found.verify) > 0


def test_an_engine_shares_the_tensors_of_the_target(tmp_path):
    target = tiny_model(vocab=61, layers=2, seed=1, dtype=torch.float32)
    Teacher(target, ())
    theirs = served(target)
    assert theirs is not target and theirs.exact and not target.exact
    own = {id(one) for one in target.parameters()}
    assert own and {id(one) for one in theirs.parameters()} == own
    assert not any(isinstance(part, LinearMap) and part.tile is not None for part in target.modules())
    save_model(target, tmp_path)
    wrote = LLM.over(tmp_path, theirs).generate({"prompt_token_ids": [1, 2, 3]}, SamplingParams(max_tokens=9))
    assert (
        wrote.token_ids
        == LLM(tmp_path, drafter="none")
        .generate({"prompt_token_ids": [1, 2, 3]}, SamplingParams(max_tokens=9))
        .token_ids
    )


def scripted():
    return Evaluation(score=2.0, line="held-out", numbers={"tau": 2.0, "conditional": [0.5, 0.25], "speedup": 1.3})


def test_pace_and_time_left_stand_in_the_log_and_on_the_board(tmp_path):
    shown, told = [], []
    loop = toy_loop(NextToken(toy_decoder()), tmp_path, evaluate=scripted, eval_every=4, steps=8, decay_share=1.0)
    loop.journal.board, loop.journal.report = (lambda step, numbers: shown.append((step, numbers))), told.append
    loop.evaluate()
    loop.run()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 4, 8] and "seconds_left" not in lines[0]
    for line in lines[1:]:
        left = (8 - line["step"]) * 256 / line["tokens_a_second"]
        assert line["seconds_left"] == pytest.approx(left) and line["loss"] > 0 and line["speedup"] == 1.3
    assert [step for step, _ in shown] == [0, 4, 8] and shown[1][1]["speedup"] == 1.3
    assert "min left" in told[1] and "min left" not in told[0]


def test_a_board_needs_its_package(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"needs the package tensorboard: pip install outdraft\[train\]"):
        open_board(tmp_path)


def test_a_board_gets_every_number_by_its_name(monkeypatch, tmp_path):
    added = []

    class Writer:
        def __init__(self, place):
            self.place = place

        def add_scalar(self, name, value, step):
            added.append((name, value, step))

        def flush(self):
            pass

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=Writer))
    open_board(tmp_path)(4, {"step": 4, "tau": 2.0, "joint": [0.5, 0.25], "note": "x"})
    assert added == [("tau", 2.0, 4), ("joint/1", 0.5, 4), ("joint/2", 0.25, 4)]


def test_a_board_is_what_tensorboard_reads(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    open_board(tmp_path)(4, {"tau": 2.0, "joint": [0.5]})
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert sorted(read.Tags()["scalars"]) == ["joint/1", "tau"]
    assert [(one.step, one.value) for one in read.Scalars("tau")] == [(4, 2.0)]
