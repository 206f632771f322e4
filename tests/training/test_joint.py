"""A target that learns with its heads: the original stays, heads warm up alone, what is saved is what learned."""

import copy
from dataclasses import replace

import pytest
import torch

from outdraft.core.learner import TARGET, Moment
from outdraft.core.learner_registry import find_learner
from outdraft.learn.compare import accepted, compare
from outdraft.learn.losses import forward_kl
from outdraft.learn.step import Optimizer
from outdraft.models.files.load import load_model
from outdraft.models.remake.lora import changed, load_lora, merged
from outdraft.testing.tiny import tiny_model
from outdraft.training.config import LoopConfig
from outdraft.training.draft import DraftObjective, Exam
from outdraft.training.lessons import Teacher
from outdraft.training.loop import Loop
from outdraft.training.packing import PackedRows
from outdraft.training.train import own_nats

VOCAB = 31


@pytest.fixture
def target():
    return tiny_model(vocab=VOCAB, layers=2, seed=1, dtype=torch.float32)


def joint(target, seed=3, **options):
    method = find_learner("medusa")
    learner = method.new(method.options(joint=True, num_heads=2, **options), target, seed)
    return learner, Teacher(target, learner.taps)


def bend(learner, seed=5):
    """Changes of the target that show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for factor in learner.module["lora"].parameters():
            factor += 0.3 * torch.randn(factor.shape, generator=generator)


def rows(step=None, seed=0):
    ids = torch.randint(VOCAB, (2, 13), generator=torch.Generator().manual_seed(seed))
    documents = torch.tensor([(0,) * 13, (0,) * 5 + (1,) * 8])
    moment = None if step is None else Moment(step=step, steps=10, seed=step)
    return PackedRows(ids=ids, documents=documents, counts=documents[:, 1:] == documents[:, :-1], moment=moment)


def gradients(learner, teacher, text):
    learner.module.zero_grad(set_to_none=True)
    DraftObjective(learner, teacher, forward_kl).total(text)[0].backward()
    return {name: one.grad for name, one in learner.module.named_parameters()}


def test_in_warm_up_the_heads_alone_have_a_gradient(target):
    learner, teacher = joint(target, warmup_share=0.2)
    for step, taught in ((0, False), (1, False), (2, True), (9, True)):
        found = gradients(learner, teacher, rows(step))
        lora = [one for name, one in found.items() if name.startswith("lora")]
        assert all(one is None for one in lora) is not taught
        assert all(one is not None for name, one in found.items() if name.startswith("heads"))
        if taught:  # B is 0 at first, so that only its own gradient is not
            assert all(float(one.abs().max()) > 0 for name, one in found.items() if name.endswith(".b"))


def test_untrained_changes_change_nothing_and_trained_ones_are_what_is_merged(target, tmp_path):
    learner, teacher = joint(target)
    lesson = teacher.lesson(rows())
    torch.testing.assert_close(learner.look(lesson).states, lesson.states, atol=1e-6, rtol=0)
    bend(learner)
    states = learner.look(lesson).states
    assert float((states - lesson.states).abs().max()) > 0.01
    learner.save(tmp_path)
    served = Teacher(load_model(tmp_path / TARGET, "float32"), ()).lesson(rows())
    torch.testing.assert_close(served.states, states, atol=1e-5, rtol=0)
    again = merged(target, load_lora(tmp_path, target))
    assert torch.equal(again.layers[1].down.weight, load_model(tmp_path / TARGET, "float32").layers[1].down.weight)


def test_the_passes_of_a_narrow_target_use_the_matrices_that_are_written():
    narrow = tiny_model(vocab=VOCAB, layers=2, seed=1, dtype=torch.bfloat16)
    learner, _ = joint(narrow)
    bend(learner)
    lora = learner.module["lora"]
    passes, written = changed(narrow, lora), merged(narrow, lora)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(passes.layers[0].qkv.matrix(), written.layers[0].qkv.weight)


def test_the_original_target_is_left_alone(target):
    kept = copy.deepcopy(target.state_dict())
    learner, teacher = joint(target, target_lr_share=1.0)
    optimizer = torch.optim.Adam(learner.module.parameters(), lr=0.01)
    for step in range(5):
        gradients(learner, teacher, rows(5 + step))
        optimizer.step()
    assert all(torch.equal(one, kept[name]) for name, one in target.state_dict().items())
    assert not any(one.grad is not None for one in target.parameters())
    before, after = own_nats(learner, teacher, Exam(batches=[rows()], depth=2))
    assert before != after


def test_heads_are_compared_with_the_target_that_verifies(target):
    """Against the original, the same guesses are accepted otherwise: the promise would be another."""
    learner, teacher = joint(target)
    bend(learner)
    lesson = teacher.lesson(rows())
    outlook = learner.look(lesson)
    right = accepted(outlook, lesson, teacher.logits, 1.0)[0].ratio
    wrong = accepted(replace(outlook, states=None), lesson, teacher.logits, 1.0)[0].ratio
    as_served = accepted(replace(outlook, states=None), replace(lesson, states=outlook.states), teacher.logits, 1.0)[
        0
    ].ratio
    torch.testing.assert_close(right, as_served)
    assert float((right - wrong).abs().max()) > 0.01
    losses = [
        float(compare(one, lesson, teacher.logits, forward_kl).loss.detach())
        for one in (replace(outlook, beside=()), replace(outlook, beside=(), states=None))
    ]
    assert abs(losses[0] - losses[1]) > 1e-3


def test_the_targets_own_loss_is_its_divergence_or_the_texts_tokens(target):
    found = {}
    for distil in (True, False):
        learner, teacher = joint(target, distil=distil, target_weight=2.0)
        lesson = teacher.lesson(rows(9))
        fresh = float(learner.look(lesson).beside[0].values.mean().detach())
        bend(learner)
        outlook = learner.look(lesson)
        log_p, log_q = (teacher.logits(one).log_softmax(-1)[lesson.counts] for one in (lesson.states, outlook.states))
        x = lesson.ids[:, 1:].flatten()[lesson.counts]
        far = (log_p.exp() * (log_p - log_q)).sum(-1) if distil else -log_q.gather(-1, x[:, None])[:, 0]
        torch.testing.assert_close(outlook.beside[0].values.detach(), 2 * far)
        assert outlook.beside[0].rows.tolist() == lesson.counts.nonzero()[:, 0].tolist()
        found[distil] = fresh
    assert abs(found[True]) < 1e-5 < found[False]


@pytest.mark.parametrize("muon", [0.0, 0.1])
def test_the_changes_learn_at_their_share_of_the_rate(target, muon):
    learner, _ = joint(target, target_lr_share=0.25)
    parameters = list(learner.module.parameters())
    named = learner.module.named_parameters()
    optimizer = Optimizer(named, lr=0.1, muon_lr=muon, weight_decay=0.5, vocab_size=VOCAB, shares=learner.rates)
    optimizer.step(0.5)
    seen = {id(p): group["lr"] for part, _ in optimizer._parts for group in part.param_groups for p in group["params"]}
    assert len(seen) == len(parameters)
    lora = [seen[id(one)] for one in learner.module["lora"].parameters()]
    heads = [seen[id(one)] for one in learner.module["heads"].parameters()]
    assert lora == pytest.approx([0.25 * 0.05] * len(lora)) and heads == pytest.approx([0.05] * len(heads))


class Data:
    def rows(self, step, first, count, length):
        return rows(step, seed=step)


def test_a_run_that_is_resumed_after_the_warm_up_began_ends_with_the_same_bits(target, tmp_path):
    def loop(place):
        learner, teacher = joint(target, warmup_share=0.3)
        config = LoopConfig(steps=8, seq_len=12, batch_tokens=24, micro_tokens=24, warmup=1, save_every=1000)
        return learner, Loop(
            DraftObjective(learner, teacher, forward_kl),
            Data(),
            config,
            tmp_path / place,
            lambda line: None,
            listens=False,
            shares=learner.rates,
        )

    whole, run = loop("whole")
    run.run()
    for cut in (2, 5):  # in the warm-up (3 of 10 steps), and behind it
        _, first = loop(f"cut{cut}")
        first.run(until=cut)
        learner, second = loop(f"cut{cut}")
        second.resume()
        second.run()
        for name, one in learner.module.named_parameters():
            assert torch.equal(one, whole.module.get_parameter(name)), name
    assert any(float(one.detach().abs().max()) > 0 for n, one in whole.module.named_parameters() if n.endswith(".b"))
