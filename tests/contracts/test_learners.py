"""Every learner: it sees no future, reads nothing that drafting would not have, learns, and keeps its word.

A learner is found by its file, so a new one is tested here without a line being added.
"""

from dataclasses import replace
from math import hypot

import pytest
import torch
from contracts.spec_rows import learning

from outdraft.core.learner import OWN, TARGET, TargetLearner
from outdraft.core.learner_registry import find_learner, learner_names
from outdraft.core.registry import find, make_options
from outdraft.drafters.shared.learning.vocab import whole_logits
from outdraft.learn.losses import forward_kl
from outdraft.models.files.load import save_model
from outdraft.options.errors import OutdraftError
from outdraft.testing.tiny import tiny_model
from outdraft.training.check import measure
from outdraft.training.draft import DraftObjective, Exam
from outdraft.training.lessons import Teacher
from outdraft.training.packing import PackedRows
from outdraft.training.promise import promise
from outdraft.training.record import PromiseTerms

VOCAB = 31
# Each with its defaults, then as the file of its rows says besides: LEARNING = {label: options}.
CASES = {name: (name, {}) for name in learner_names()} | {
    f"{name}-{label}": (name, options) for name in learner_names() for label, options in learning(name).items()
}
LEARNERS = list(CASES)


@pytest.fixture(scope="module")
def target():
    return tiny_model(vocab=VOCAB, layers=3, seed=1, dtype=torch.float32)


def make(name, target, seed=3):
    """A learner whose weights are wide enough that everything that it may read shows."""
    method, options = asked(name)
    learner = method.new(options, target, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in learner.module.parameters():
            if parameter.dim() > 1:
                parameter += torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5
    return method, learner, Teacher(target, learner.taps)


def asked(case):
    """The learner of a case, and the options that it is made with."""
    name, options = CASES[case]
    return find_learner(name), find_learner(name).options(**options)


def rows(seed=0, documents=((0,) * 13, (0,) * 5 + (1,) * 8)):
    ids = torch.randint(VOCAB, (2, 13), generator=torch.Generator().manual_seed(seed))
    documents = torch.tensor(documents)
    return PackedRows(ids=ids, documents=documents, counts=documents[:, 1:] == documents[:, :-1])


@torch.no_grad()
def guessed(learner, lesson):
    """Logits of each depth at the target's rows: NaN where nothing is guessed."""
    found = []
    for guess in learner.look(lesson).guesses:
        logits = torch.full((lesson.ids.shape[0] * lesson.shape[1], VOCAB), torch.nan)
        logits[guess.rows] = whole_logits(guess.head(guess.states).float(), guess.vocab, VOCAB).clamp_min(-1e4)
        found.append(logits.view(*lesson.shape, VOCAB))
    return torch.stack(found)  # [K, B, T, V]


def changed(before, after):
    """Where logits differ [K, B, T]."""
    return (((before - after).abs() > 1e-5) | (before.isnan() != after.isnan())).any(-1)


@pytest.mark.parametrize("name", LEARNERS)
def test_no_guess_depends_on_what_comes_after_it(name, target):
    _, learner, teacher = make(name, target)
    text = rows()
    before = guessed(learner, teacher.lesson(text))
    for at in (4, 9):
        ids = text.ids.clone()
        ids[:, at] = (ids[:, at] + 1) % VOCAB
        moved = changed(before, guessed(learner, teacher.lesson(replace(text, ids=ids))))
        assert not moved[:, :, :at].any(), f"a guess before token {at} has seen it"
        assert moved[0, :, at:].any(), "and one behind it has not"


@pytest.mark.parametrize("name", [name for name in LEARNERS if asked(name)[0].hands_states])
def test_an_exam_of_what_goes_on_for_ever_is_as_deep_as_it_is_asked(name, target):
    """Fewer or more steps than were trained: tau is of as many tokens as the rounds whose costs divide it."""
    _, learner, teacher = make(name, target)
    for depth in (2, 6):
        seen = Exam(batches=[rows()], depth=depth).walk(learner, teacher)
        assert len(seen.kept) == depth


@pytest.mark.parametrize("name", LEARNERS)
def test_no_guess_depends_on_another_document(name, target):
    _, learner, teacher = make(name, target)
    text = rows()
    before = guessed(learner, teacher.lesson(text))
    ids = text.ids.clone()
    ids[1, :5] = (ids[1, :5] + 1) % VOCAB  # all of the first document of the second row
    moved = changed(before, guessed(learner, teacher.lesson(replace(text, ids=ids))))
    assert not moved[:, 1, 5:].any() and moved[:, 1, :5].any()


@pytest.mark.parametrize("name", LEARNERS)
def test_a_guess_reads_the_targets_states_before_the_pending_token_alone(name, target):
    """Depth d is d tokens after the last token that the target has read, whose state is the last that there is."""
    _, learner, teacher = make(name, target)
    lesson = teacher.lesson(rows())
    if not learner.taps or learner.look(lesson).recurs or isinstance(learner, TargetLearner):
        return  # it reads no states, or it makes the states of its own tokens itself, or those of all
    chooses = any(
        one.name == OWN for one in learner.look(lesson).beside
    )  # it guesses one token or none: not every change shows
    before, at = guessed(learner, lesson), 6
    bent = {tap: states.clone() for tap, states in lesson.taps.items()}
    for states in bent.values():
        states.view(*lesson.shape, -1)[0, at] += 1.0
    states = lesson.states.clone()
    states.view(*lesson.shape, -1)[0, at] += 1.0
    moved = changed(before, guessed(learner, replace(lesson, taps=bent, states=states)))
    for depth, where in enumerate(moved[:, 0], 1):
        assert not where[: at + depth].any(), f"a guess of depth {depth} has read a state that the target has not made"
        assert chooses or where[at + depth : at + depth + 1].all(), (
            f"a guess of depth {depth} has not read the last state that there is"
        )
    assert any(where[at + depth : at + depth + 1].any() for depth, where in enumerate(moved[:, 0], 1))


@pytest.mark.parametrize("name", LEARNERS)
def test_what_is_saved_guesses_the_same(name, target, tmp_path):
    method, learner, teacher = make(name, target)
    learner.save(tmp_path)
    again = method.load(asked(name)[1], target, tmp_path)
    lesson = teacher.lesson(rows())
    torch.testing.assert_close(guessed(again, lesson), guessed(learner, lesson), equal_nan=True)
    assert all(parameter.requires_grad for parameter in again.module.parameters())


@pytest.mark.parametrize("name", LEARNERS)
def test_a_few_steps_lower_the_loss_and_leave_the_target_alone(name, target):
    method, options = asked(name)
    learner = method.new(options, target, 3)
    teacher = Teacher(target, learner.taps)
    kept = [parameter.clone() for parameter in target.parameters()]
    objective, losses = DraftObjective(learner, teacher, forward_kl), []
    optimizer = torch.optim.Adam([p for p in learner.module.parameters() if p.requires_grad], lr=3e-3)
    for _ in range(24):
        optimizer.zero_grad()
        loss = objective.loss(rows())[0]
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    assert all(torch.equal(a, b) for a, b in zip(kept, target.parameters(), strict=True))


@pytest.mark.parametrize(
    ("name", "temperature"),  # in turn; crossed in the slow run
    [
        pytest.param(name, float(one), marks=() if (turn + one) % 2 else pytest.mark.slow)
        for turn, name in enumerate(LEARNERS)
        for one in (0, 1)
    ],
)
def test_the_engine_does_what_the_trainer_says(name, temperature, target, tmp_path):
    method, learner, teacher = make(name, target)
    save_model(target, tmp_path / "target")
    learner.save(tmp_path / "draft")
    generator = torch.Generator().manual_seed(1)
    prompts = tuple(
        tuple(torch.randint(VOCAB, (5,), generator=generator).tolist()) for _ in range(60 if temperature else 20)
    )
    terms = PromiseTerms(prompts=prompts, max_tokens=16, depth=3, temperature=temperature)
    taught = isinstance(learner, TargetLearner)  # its target is the one that it saves
    verifier = tmp_path / "draft" / TARGET if taught else tmp_path / "target"
    said = promise(learner, teacher, verifier, terms)
    options = {"model": str(tmp_path / "draft"), **method.drafts}
    seen = measure(method.drafter or CASES[name][0], options, verifier, terms, dtype="float32")
    far, chance = abs(seen.tau - said.tau), hypot(seen.standard_error, said.standard_error)
    assert far < (0.01 * said.tau if temperature == 0 else 4 * chance), (said.tau, seen.tau, chance)  # of many cases
    assert temperature == 0 or chance < 0.03 * said.tau  # so that it can tell


@pytest.mark.parametrize("name", LEARNERS)
def test_short_texts_and_texts_of_nothing_to_guess_break_nothing(name, target):
    _, learner, teacher = make(name, target)
    ids = torch.randint(VOCAB, (2, 4), generator=torch.Generator().manual_seed(2))
    short = PackedRows(
        ids=ids, documents=torch.tensor([[0, 0, 1, 1], [0, 0, 0, 0]]), counts=torch.zeros(2, 3, dtype=bool)
    )
    DraftObjective(learner, teacher, forward_kl).loss(short)[0].backward()
    counted = replace(short, counts=torch.tensor([[True, False, False], [True, True, True]]))
    found = Exam(batches=[counted, rows()], depth=3).walk(learner, teacher)
    assert found.tau >= 1 and len(found.kept) == 3


@pytest.mark.parametrize("name", [name for name in LEARNERS if asked(name)[0].model_type])
def test_a_head_of_another_target_is_refused(name, target, tmp_path):
    method, learner, _ = make(name, target)
    learner.save(tmp_path)
    with pytest.raises(OutdraftError):
        method.load(asked(name)[1], tiny_model(vocab=VOCAB + 2, layers=1, hidden=32, seed=1), tmp_path)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_says_how_its_draft_is_used(name):
    method, _ = asked(name)
    assert method.summary and (method.model_type is None) == (method.inflate is None)
    drafter = find("drafter", method.drafter or CASES[name][0])
    options = make_options(drafter, {"model": "x", **method.drafts})
    assert drafter.shape_of(options) == "chain"
