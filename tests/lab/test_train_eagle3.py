"""What a quick training run computes is what the trainer computes, and its rows hold whole texts."""

import numpy as np
import pytest
import torch

from lab.smollm2.eagle3_course import Course, Pool, evaluate, pieces
from lab.smollm2.fused_unrolled import FusedUnrolled
from lab.smollm2.packed import Answer, write
from lab.smollm2.row_loss import row_loss
from lab.smollm2.whole_rows import Text, is_held_out, lay_out, texts_of
from outdraft.core.learner import Moment
from outdraft.drafters.eagle3.learn import LEARN, Eagle3Learning
from outdraft.drafters.shared.learning.unrolled import UnrolledContext
from outdraft.learn.losses import forward_kl, hybrid, mixed
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher, places_of
from outdraft.training.packing import PackedRows
from tests.training.toys import toy_decoder


def some_texts(count: int, vocab: int, seed: int = 0) -> list[Text]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(6, 30, count)
    return [Text(ids=rng.integers(0, vocab, n).astype(np.uint16), answer=int(rng.integers(1, n - 2))) for n in sizes]


@pytest.mark.parametrize(("is_hybrid", "loss"), ((False, forward_kl), (True, hybrid)))
def test_the_gradient_is_that_of_the_loss(is_hybrid, loss):
    torch.manual_seed(0)
    q, p, weights = torch.randn(40, 33), torch.randn(40, 33), torch.rand(40)
    one, two = q.clone().requires_grad_(), q.clone().requires_grad_()
    total, accepted = row_loss(one, p, weights, hybrid=is_hybrid)
    expected = (loss(p.log_softmax(-1), two.log_softmax(-1), torch.zeros(40)) * weights).sum()
    (3 * total).backward()
    (3 * expected).backward()
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(one.grad, two.grad, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(accepted, torch.minimum(p.softmax(-1), q.softmax(-1)).sum(-1))


def test_fused_attention_is_the_plain_one():
    torch.manual_seed(0)
    documents = torch.tensor([[0] * 20 + [1] * 40 + [-1] * 4, [0] * 64])
    places, found = places_of(documents), []
    given = [[torch.randn(128, 6, 16), torch.randn(128, 2, 16), torch.randn(128, 2, 16)] for _ in range(4)]
    factors = torch.randn(4, 128, 96)
    for kind in (UnrolledContext, FusedUnrolled):
        steps = [[one.clone().requires_grad_() for one in step] for step in given]
        context, total = kind(documents, places), torch.zeros(())
        for i, (q, k, v) in enumerate(steps):
            counts = ((places >= i) & (documents >= 0)).flatten()[:, None]
            out = context.attend(0, q, k, v, window=None, scale=0.25)
            total = total + (out * factors[i] * counts).sum()
        total.backward()
        found.append((total.detach(), [one.grad for step in steps for one in step]))
    torch.testing.assert_close(found[0], found[1], atol=2e-5, rtol=1e-4)


def test_rows_hold_every_text_whole():
    texts = some_texts(300, 1000)
    rows = lay_out(texts, 63, 0)
    seen = sorted(
        tuple(ids[documents == number].tolist())
        for ids, documents in zip(rows.ids, rows.documents, strict=True)
        for number in range(documents.max() + 1)
    )
    assert seen == sorted(tuple(text.ids.tolist()) for text in texts)
    assert rows.answer.sum() == sum(len(text.ids) - text.answer for text in texts)
    assert (rows.documents < 0).mean() < 0.08


def test_texts_are_held_out_by_their_prompt(tmp_path):
    rng = np.random.default_rng(0)
    told = {"kind": "own", "temperature": 1.0, "ended": True, "second": False}
    answers = [
        Answer(prompt=[i, 7], ids=rng.integers(0, 99, 9).astype(np.uint16), **told)  # type: ignore[arg-type]
        for i in range(400)
    ]
    learned, held = texts_of(write(answers, tmp_path / "a", 2))
    assert len(learned) + len(held) == 400
    assert {int(text.ids[0]) for text in held} == {i for i in range(400) if is_held_out([i, 7])}
    assert 1 <= len(held) <= 24
    assert all(text.answer == 2 for text in learned)


@pytest.fixture(scope="module")
def course() -> Course:
    target = toy_decoder()
    options = Eagle3Learning(
        num_steps=5, draft_vocab_size=target.config.vocab_size // 2, fc_norm=True, norm_output=True
    )
    learner = LEARN.new(options, target, 3)
    made = Course(Teacher(target, learner.taps), [learner.module], 2, 64)
    made.learner = learner
    return made


@pytest.mark.parametrize("kind", (UnrolledContext, FusedUnrolled))
def test_losses_are_the_trainers(course, kind):
    course.unrolled = kind
    vocab = course.teacher.target.config.vocab_size
    pool = Pool(lay_out(some_texts(40, vocab), 64, 0), course)
    pool.give(course, torch.arange(2), course.teach)
    course.clear()
    losses, _ = course.losses()
    losses[0].backward()
    own = {name: one.grad.clone() for name, one in course.nets[0].named_parameters() if one.grad is not None}
    course.clear()
    documents = course.documents
    counts = course.answer[:, 1:] & (documents[:, 1:] == documents[:, :-1])
    rows = PackedRows(
        ids=course.ids, documents=documents, counts=counts, moment=Moment(step=0, steps=1, seed=0, first=0)
    )
    found = DraftObjective(course.learner, course.teacher, mixed({"forward_kl": 1.0}).rows).total(rows)
    (found[0] / found[1]).backward()
    torch.testing.assert_close(losses[0], found[0] / found[1], rtol=1e-5, atol=1e-6)
    for name, one in course.nets[0].named_parameters():
        if one.grad is not None:
            far = float((own[name] - one.grad).norm() / one.grad.norm().clamp(min=1e-6))
            assert far < 1e-4, name


def test_an_epoch_takes_every_row_once(course):
    vocab = course.teacher.target.config.vocab_size
    pools = [Pool(lay_out(some_texts(count, vocab, count), 64, 0), course) for count in (50, 90)]
    made = pieces(pools, 2, torch.Generator().manual_seed(0))
    for pool in pools:
        taken = sorted(int(row) for one, rows in made if one is pool for row in rows)
        assert taken == sorted(set(taken))
        assert len(taken) >= len(pool) - 1
    assert len(evaluate(course, pools[0])[0]) == 5
