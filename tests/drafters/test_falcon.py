"""Falcon: the LSTM along the text, blocks whose rows see each other, passes by twos, and what is shown in training."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from contracts.sides import randomise

from outdraft.core.learner import Moment
from outdraft.drafters.falcon.learn import LEARN, FalconLearning
from outdraft.drafters.falcon.net import FalconNet, LstmLayer
from outdraft.drafters.falcon.scan import LstmScan
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from tests.drafters.drafting import draft_behind
from tests.training.toys import draft_loop, draft_objective, lesson_rows, rates, rows, toy_decoder, trained_target

MOMENT = Moment(step=0, steps=10, seed=1)


def made(target=None, **options):
    target = target or toy_decoder(1)
    learner = LEARN.new(FalconLearning(noise=0.0, **options), target, 0)
    randomise(learner.module, 3)
    return learner, Teacher(target, learner.taps)


def test_the_lstm_runs_along_the_text_and_begins_again_with_each():
    """PyTorch's own, one text after the other, in its order of gates."""
    net, width = made()[0].module, 32
    theirs = torch.nn.LSTM(2 * width, width, num_layers=2, batch_first=True)
    order = torch.cat([torch.arange(width) + part * width for part in (0, 1, 3, 2)])  # ours: out before what comes in
    with torch.no_grad():
        for i, layer in enumerate(net.lstm):
            getattr(theirs, f"weight_ih_l{i}").copy_(layer.input.weight[order])
            getattr(theirs, f"weight_hh_l{i}").copy_(layer.hidden.weight[order])
            getattr(theirs, f"bias_ih_l{i}").copy_(layer.input.bias[order])
            getattr(theirs, f"bias_hh_l{i}").zero_()
    x = torch.randn(2, 9, 2, width, generator=torch.Generator().manual_seed(0))
    begins = torch.zeros(2, 9, dtype=torch.bool)
    begins[:, 0] = begins[0, 4] = begins[1, 7] = True
    states = net.along(x.flatten(2), None, begins)
    for row, cuts in enumerate(([0, 4, 9], [0, 7, 9])):
        for start, stop in pairwise(cuts):
            found, (h, c) = theirs(x[row, start:stop].flatten(1)[None])
            torch.testing.assert_close(states[row, start:stop, 2], found[0])
            torch.testing.assert_close(states[row, stop - 1], torch.stack((h[0, 0], c[0, 0], h[1, 0], c[1, 0])))
    again = net.along(x[:, 5:7].flatten(2), states[:, 4])
    torch.testing.assert_close(again, states[:, 5:7])


def test_the_scan_gives_the_states_and_the_gradients_of_single_steps():
    """By finite differences; the same layer without gradients takes the steps one by one."""
    numbers, (n, length, width) = torch.Generator().manual_seed(0), (2, 5, 3)

    def drawn(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=numbers).requires_grad_()

    begins = torch.tensor([[False, False, True, False, False], [True, False, False, False, True]])
    parts = drawn(n, length, 4 * width), drawn(4 * width, width), drawn(n, width), drawn(n, width)
    assert torch.autograd.gradcheck(lambda *given: LstmScan.apply(*given, (~begins).double()), parts)
    layer = LstmLayer(7, width, torch.float64, torch.device("cpu"))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, generator=numbers)
    x, state = drawn(n, length, 7).detach(), drawn(n, 2, width).detach()
    with torch.no_grad():
        steps = layer(x, state, begins)
    torch.testing.assert_close(layer(x, state, begins), steps)
    parts = [one.detach().float().requires_grad_() for one in parts]
    with torch.autocast("cpu", torch.bfloat16):
        inside = LstmScan.apply(*parts, (~begins).float())
    assert torch.equal(inside, LstmScan.apply(*parts, (~begins).float())), "nothing is rounded on the way"


@pytest.mark.parametrize(("block", "passes"), [(2, 3), (3, 2)])
def test_five_tokens_take_a_pass_for_each_block(block, passes, tmp_path, monkeypatch):
    target = tiny_model(vocab=31, layers=3, dtype=torch.float32)
    learner, _ = made(target, block_size=block)
    learner.save(tmp_path)
    seen, guess = [], FalconNet.guess

    def counted(self, rows, positions, ctx):
        seen.append(rows.shape[1])
        return guess(self, rows, positions, ctx)

    monkeypatch.setattr(FalconNet, "guess", counted)
    draft = draft_behind(target, [3, 1, 4, 1, 5], "falcon", tmp_path, depth=5, width=1)
    assert draft.num_nodes == 6 and seen == [block * (i + 1) for i in range(passes)]


def test_a_text_of_fewer_rows_than_a_block_has_no_guess(tmp_path):
    target = tiny_model(vocab=31, layers=3, dtype=torch.float32)
    learner, _ = made(target, block_size=3)
    learner.save(tmp_path)
    for prompt, nodes in (([3, 1, 4], 1), ([3, 1, 4, 1], 4)):
        assert draft_behind(target, prompt, "falcon", tmp_path, depth=3, width=1).num_nodes == nodes


def test_a_row_that_is_shown_its_answer_is_not_learned_and_the_next_goes_on_from_it(monkeypatch):
    target = toy_decoder(1)
    learner, teacher = made(target, anchors=99)
    text = lesson_rows(torch.arange(12).view(2, 6) % 8)
    lesson, plain = teacher.lesson(replace(text, moment=MOMENT)), learner.look(teacher.lesson(text)).guesses
    anchors = torch.tensor([2, 3, 4, 7, 8, 9])  # of five rows a text, those with two before them
    chosen = torch.tensor([False, True, False, True, False, False])
    monkeypatch.setattr(learner, "_shown", lambda *given: torch.stack((chosen, torch.zeros_like(chosen)), 1))
    first, second = learner.look(lesson).guesses
    assert first.rows.tolist() == anchors[~chosen].tolist()
    torch.testing.assert_close(first.states, plain[0].states[~chosen])
    net, f = learner.module, target.norm(lesson.states)
    tokens = lesson.ids[:, 1:].flatten()
    for row, state in zip(second.rows.tolist(), second.states, strict=True):
        at, start = row - 1, (row - 1) // 5 * 5  # the pending token's row, and the text's first one
        own = list(range(start, at))
        read = [*own[:-2], at, own[-1]] if bool(chosen[anchors == at]) else own
        states = net.along(net.join(target.embed(tokens[read], lesson.positions[read] + 1), f[read])[None])

        class Whole:
            def attend(self, layer, q, k, v, *, scale, sinks=None):
                k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
                scores = torch.einsum("nhd,mhd->hnm", q, k) * scale
                return torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v).flatten(1)

        whole = net.guess(states, lesson.positions[[start]], Whole())
        torch.testing.assert_close(state, whole[0, -1], atol=1e-5, rtol=1e-4)


def test_as_many_blocks_are_shown_as_a_share_of_what_is_missed():
    """All of it at the first step, nothing at the last; the same again for the same step, nothing in an exam."""
    target = toy_decoder(1)
    learner, teacher = made(target, shown_first=0.5, shown_last=0.0)
    text = lesson_rows(rows(4))
    exam = learner.look(teacher.lesson(text)).guesses[:2]
    missed = sum(
        int((guess.head(guess.states).argmax(-1) != text.ids[:, 1:].flatten()[guess.rows]).sum()) for guess in exam
    )

    def counts(step):
        learning = learner.look(teacher.lesson(replace(text, moment=replace(MOMENT, step=step)))).guesses
        return [len(guess.rows) for guess in learning], learning[0].rows

    (some, all_seconds), which = counts(0)
    assert all_seconds == len(exam[1].rows) and 0 < len(exam[0].rows) - some <= missed // 2
    assert len(exam[0].rows) - some >= missed // 2 - 4, "rounded down in each of four rows of texts"
    assert counts(0)[1].tolist() == which.tolist() and counts(5)[0][0] > some
    assert counts(10)[0][0] == len(exam[0].rows)


def test_blocks_of_three_are_shown_one_token_or_two():
    target = toy_decoder(1)
    learner, teacher = made(target, block_size=3, shown_first=1.0, shown_last=1.0)
    exam = [len(guess.rows) for guess in learner.look(teacher.lesson(lesson_rows(rows(8)))).guesses]
    told = learner.look(teacher.lesson(replace(lesson_rows(rows(8)), moment=MOMENT))).guesses
    first, second, third = (len(guess.rows) for guess in told)
    assert exam[0] - first > exam[1] - second > 0 and third == exam[2]


def test_no_gradient_is_lost_on_short_texts_of_two_documents():
    target = tiny_model(vocab=7, layers=2, dtype=torch.float64)
    learner = LEARN.new(FalconLearning(), target, 0)
    randomise(learner.module.to(torch.float64), 3)
    learner.module.dtype = torch.float64
    ids, documents = torch.arange(18).view(2, 9) % 7, torch.tensor([[0] * 9, [0] * 4 + [1] * 5])
    text = PackedRows(ids=ids, documents=documents, counts=documents[:, 1:] == documents[:, :-1], moment=MOMENT)
    outlook = learner.look(Teacher(target, learner.taps).lesson(text))
    assert len(outlook.guesses) == 2
    sum(one.values.sum() for one in outlook.beside).backward()
    for name, parameter in learner.module.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.abs().sum() > 0), name


def test_training_makes_it_guess_the_text(tmp_path):
    target = trained_target()
    learner = LEARN.new(FalconLearning(), target, 0)
    objective = draft_objective(learner, target)
    before = rates(objective)
    draft_loop(objective, tmp_path, steps=80).run()
    after = rates(objective)
    assert after[0] < 0.8 * before[0]
    assert after[1] > before[1] + 0.2 and after[2] > before[2] + 0.1, (before, after)


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="block_size=1"):
        FalconLearning(block_size=1)
