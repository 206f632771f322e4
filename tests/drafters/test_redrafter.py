"""ReDrafter's recurrence: what is drafted is what training unrolls, and untrained it says what the target said."""

import pytest
import torch
from contracts.sides import randomise

from outdraft.drafters.redrafter.learn import LEARN, ReDrafterLearning
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.lessons import Teacher
from tests.drafters.drafting import draft_behind
from tests.training.toys import lesson_rows

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
AT = len(PROMPT) - 2  # the row whose next token is the pending one


def guesses(learner, target, ids):
    outlook = learner.look(Teacher(target, learner.taps).lesson(lesson_rows(torch.tensor([ids]))))
    return [guess.head(guess.states[AT : AT + 1])[0] for guess in outlook.guesses]


@pytest.mark.parametrize("architecture", ["llama", "gpt2"])
def test_a_chain_is_what_training_unrolls(architecture, tmp_path):
    """Also where an embedding depends on its position."""
    target = tiny_model(architecture, vocab=31, layers=3, dtype=torch.float64)
    learner = LEARN.new(ReDrafterLearning(), target, 0)
    randomise(learner.module.to(torch.float64), 3)
    learner.save(tmp_path)
    drafted = draft_behind(target, PROMPT, "redrafter", tmp_path, depth=9).tokens.tolist()
    assert len(drafted) == 6, "as many tokens as it was trained for"
    said = guesses(learner, target, [*PROMPT, *drafted[1:], 0, 0])
    assert drafted == [6, *(int(one.argmax()) for one in said)]
    assert len(set(drafted)) >= 3


def test_a_beam_is_a_tree_in_which_nothing_comes_twice(tmp_path):
    target = tiny_model(vocab=31, layers=3, dtype=torch.float64)
    learner = LEARN.new(ReDrafterLearning(), target, 0)
    randomise(learner.module.to(torch.float64), 3)
    learner.save(tmp_path)
    draft = draft_behind(target, PROMPT, "redrafter", tmp_path, width=3, nodes=12, depth=4)
    tokens, parents = draft.tokens.tolist(), draft.parents.tolist()
    assert len(tokens) == 13 and len(set(zip(parents, tokens, strict=True))) == 13
    children = [node for node in range(1, 13) if parents[node] == 0]
    assert len(children) >= 2 and any(parents[node] in children for node in range(1, 13))


def test_the_state_carries_every_token_on():
    """A token changes what is guessed at its own step and at all later ones."""
    target = tiny_model(vocab=31, layers=3, dtype=torch.float64)
    learner = LEARN.new(ReDrafterLearning(), target, 0)
    randomise(learner.module.to(torch.float64), 3)
    text = [*PROMPT, 7, 8, 9, 10, 11, 12]
    for step in range(4):
        other = list(text)
        other[len(PROMPT) - 1 + step] = 0
        moved = [
            not torch.equal(a, b)
            for a, b in zip(guesses(learner, target, text), guesses(learner, target, other), strict=True)
        ]
        assert moved == [i >= step for i in range(5)]


def test_untrained_it_says_what_the_target_said():
    target = tiny_model(vocab=31, layers=3, dtype=torch.float32)
    learner = LEARN.new(ReDrafterLearning(), target, 0)
    lesson = Teacher(target, learner.taps).lesson(lesson_rows(torch.tensor([[*PROMPT, 7, 8, 9, 10, 11]])))
    for guess in learner.look(lesson).guesses:
        torch.testing.assert_close(
            guess.head(guess.states[AT : AT + 1]), target.logits(lesson.states[AT : AT + 1]), atol=1e-5, rtol=1e-5
        )


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="num_steps"):
        ReDrafterLearning(num_steps=0)
