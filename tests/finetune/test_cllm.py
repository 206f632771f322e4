"""CLLM: trajectories are Jacobi iteration's, final answers teach wrong guesses, and the original stays as it is."""

import copy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from finetune.texts import VOCAB, alone, bend, rows, small

from outdraft.core.learner import TARGET
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.shared.blocks.behind import KeptContext
from outdraft.finetune.cllm import CllmLearning
from outdraft.learn.losses import OWN
from outdraft.models.files.load import load_model
from outdraft.options.errors import CapabilityError, ConfigError
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher

WINDOW = 4


def learner_of(target, seed=3, **options):
    method = find_learner("cllm")
    learner = method.new(method.options(**{"window": WINDOW, **options}), target, seed)
    return learner, Teacher(target, learner.taps)


def windows_of(learner, lesson, anchors):
    context = KeptContext(*lesson.shape, lesson.documents[:, :-1])
    states = learner._taught.run(lesson, context).hidden
    return learner._windows(lesson, context, states, torch.tensor(anchors))


def text_before(anchor):
    """The anchor's own text up to it; the second row has two."""
    row, place = divmod(anchor, 12)
    begin = 5 if row and place >= 5 else 0
    return rows().ids[row, begin : place + 1].tolist()


def greedy(network, tokens, count):
    for _ in range(count):
        tokens = [*tokens, int(network.logits(alone(network, tokens).hidden[-1:]).argmax())]
    return tokens[-count:]


ANCHORS = [3, 10, 14, 18]


@torch.no_grad()
def test_a_trajectory_is_jacobi_iteration_and_ends_with_the_targets_own_text():
    learner, teacher = learner_of(small())
    bend(learner.module)
    network, lesson = learner._taught.network, teacher.lesson(rows(step=1))
    seen = learner._trajectory(windows_of(learner, lesson, ANCHORS))
    for number, anchor in enumerate(ANCHORS):
        text = text_before(anchor)
        states = [one.tolist() for one in seen[:, number]]
        assert set(states[0]) <= set(text)  # fill tokens are the text's own
        assert states[-1] == greedy(network, text, WINDOW)
        for guess, answers in pairwise(states):
            out = network.logits(alone(network, [*text, *guess]).hidden).argmax(-1).tolist()
            assert answers == out[len(text) - 1 : -1]
        for step, guess in enumerate(states):
            assert guess[:step] == states[-1][:step]  # every step settles one token at least
    assert len({tuple(one) for one in seen[0].tolist()}) > 1


def test_wrong_guesses_learn_what_the_final_ones_say():
    learner, teacher = learner_of(small(), windows=3, own_weight=2.0)
    bend(learner.module)
    network, lesson = learner._taught.network, teacher.lesson(rows(step=1))
    read = []
    run = learner._read
    learner._read = lambda windows, guesses: read.append((windows, guesses, run(windows, guesses))) or read[-1][2]
    outlook = learner.look(lesson)
    (windows, final, said), (_, guesses, own) = read[-2:]
    assert own.requires_grad and not said.requires_grad
    count = final.numel()
    far = []
    for anchor, guess, end in zip(windows.anchors.tolist(), guesses.tolist(), final.tolist(), strict=True):
        text = text_before(anchor)
        assert end == greedy(network, text, WINDOW)
        q, p = (
            network.logits(alone(network, [*text, *one]).hidden[len(text) :]).log_softmax(-1) for one in (guess, end)
        )
        far.append((p.exp() * (p - q)).sum(-1))
    assert any(guess != end for guess, end in zip(guesses.tolist(), final.tolist(), strict=True))
    (beside,) = outlook.beside
    both = len(beside.values)
    torch.testing.assert_close(beside.values[:count] * count / both, torch.cat(far), atol=1e-5, rtol=1e-4)
    log_p, log_q = (
        teacher.logits(one).log_softmax(-1)[lesson.counts]
        for one in (lesson.states, learner._taught.run(lesson).hidden)
    )
    apart = 2.0 * (log_p.exp() * (log_p - log_q)).sum(-1)
    torch.testing.assert_close(beside.values[count:] * (both - count) / both, apart, atol=1e-5, rtol=1e-4)
    assert bool(lesson.counts[beside.rows].all())


def test_windows_do_not_depend_on_how_a_step_is_cut_into_passes():
    learner, teacher = learner_of(small())
    whole = windows_of(learner, teacher.lesson(rows(step=4)), ANCHORS)
    part = windows_of(learner, teacher.lesson(rows(step=4, first=1, count=1)), [one - 12 for one in ANCHORS[2:]])
    assert torch.equal(whole.fill[2:], part.fill) and torch.equal(whole.when[2:], part.when)
    assert not torch.equal(whole.when[:2], part.when)


def test_no_window_stands_beyond_the_context():
    target = small(max_len=12)
    learner, teacher = learner_of(target)
    found = learner._fitting(teacher.lesson(rows()), torch.arange(24))
    assert found.tolist() == [*range(8), *range(12, 24)]  # 8 + 4 positions; the second row's texts are shorter


def test_more_is_settled_a_pass_and_the_original_target_is_left_alone(tmp_path):
    target = small()
    kept = copy.deepcopy(target.state_dict())
    learner, teacher = learner_of(target, own_weight=0.1)
    objective = DraftObjective(learner, teacher, OWN.rows)
    optimizer = torch.optim.Adam(learner.module.parameters(), lr=0.01)
    before = learner.assess([teacher.lesson(rows())])
    for step in range(60):
        optimizer.zero_grad()
        objective.total(rows(step))[0].backward()
        optimizer.step()
    after = learner.assess([teacher.lesson(rows())])
    assert after.score > 1.2 * before.score and after.numbers == {"jacobi_tau": after.score}
    assert all(torch.equal(one, kept[name]) for name, one in target.state_dict().items())
    learner.save(tmp_path)
    served, text = load_model(tmp_path / TARGET, "float32"), rows().ids[0, :12].tolist()
    states = learner.look(teacher.lesson(rows())).states
    torch.testing.assert_close(alone(served, text).hidden, states[:12].detach(), atol=1e-4, rtol=0)
    again = find_learner("cllm").load(learner._options, target, tmp_path)
    assert again.assess([teacher.lesson(rows())]) == after
    assert dict(find_learner("cllm").drafter_options(tmp_path)) == {}


def test_an_untrained_targets_tokens_a_pass_are_those_of_the_iteration():
    learner, teacher = learner_of(small())
    lesson = teacher.lesson(rows())
    anchors = lesson.counts.nonzero()[::WINDOW, 0].tolist()
    seen = learner._trajectory(windows_of(learner, lesson, anchors))
    passes = sum(
        1 + next(t for t, one in enumerate(seen[:, i]) if torch.equal(one, seen[-1, i])) for i in range(len(anchors))
    )
    assert learner.assess([lesson]).score == pytest.approx(WINDOW * len(anchors) / passes)


def test_what_is_out_of_range_is_refused():
    for key, value in (("window", 0), ("windows", 0), ("own_weight", -1.0), ("rank", 0)):
        with pytest.raises(ConfigError, match=key):
            CllmLearning(**{key: value})
    assert VOCAB > WINDOW


@pytest.mark.parametrize("change", [{"windows": (3, None, 3)}, {"score_cap": 20.0}])
def test_what_cannot_read_behind_a_text_is_refused_at_once(change):
    target = small()
    target.config = replace(target.config, **change)
    with pytest.raises(CapabilityError, match="windows or capped scores"):
        learner_of(target)
