"""The loop: it learns, it saves bit for bit, it resumes as if nothing had happened, it ends when told to."""

import torch

from outdraft.training.checkpoint import load_checkpoint
from outdraft.training.optim import orthogonalise
from outdraft.training.pretrain import NextToken
from outdraft.training.schedule import Schedule
from tests.training.toys import toy_config, toy_decoder, toy_loop


def test_fifty_steps_lower_the_loss(tmp_path):
    loop = toy_loop(NextToken(toy_decoder()), tmp_path)
    before = loop.evaluate()[0]
    loop.run()
    assert loop.evaluate()[0] < before - 1.0
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 2


def test_a_checkpoint_reloads_bit_for_bit(tmp_path):
    model = toy_decoder().bfloat16()
    loop = toy_loop(NextToken(model), tmp_path, steps=5)
    loop.run()
    other = toy_loop(NextToken(toy_decoder(9).bfloat16()), tmp_path, steps=5)
    other.resume()
    assert other.step == 5
    for ours, theirs in zip(model.parameters(), other.objective.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    state, _ = load_checkpoint(tmp_path / "checkpoint.pt")
    for ours, saved in zip(loop.optimizer.first, state["first"], strict=True):
        assert torch.equal(ours, saved)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    whole = toy_loop(NextToken(toy_decoder()), tmp_path / "whole", steps=12)
    whole.run()
    first = toy_loop(NextToken(toy_decoder()), tmp_path / "parts", steps=12)
    first.run(until=5)
    second = toy_loop(NextToken(toy_decoder(9)), tmp_path / "parts", steps=12)
    second.resume()
    second.run()
    for ours, theirs in zip(whole.optimizer.masters, second.optimizer.masters, strict=True):
        assert torch.equal(ours, theirs)


def test_the_finish_file_starts_the_decay(tmp_path):
    loop = toy_loop(NextToken(toy_decoder()), tmp_path, steps=1000, decay_share=0.5)
    loop.run(until=6)
    (tmp_path / "finish").touch()
    loop.run()
    assert (loop.schedule.decay_at, loop.step) == (6, 9)


def test_the_schedule_warms_up_stays_and_decays_to_zero():
    schedule = Schedule(toy_config(steps=120, warmup=10, decay_share=0.2))
    assert schedule.factor(0) == 0.1
    assert schedule.factor(50) == 1.0
    assert schedule.decay_at == 100
    assert 0 < schedule.factor(119) < schedule.factor(110) < 1
    schedule.begin_decay(50)
    assert (schedule.decay_at, schedule.end) == (50, 60)


def test_orthogonalised_matrices_have_singular_values_near_one():
    for shape in ((24, 40), (40, 24)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape, generator=torch.Generator().manual_seed(0))))
        assert values.min() > 0.4 and values.max() < 1.4
