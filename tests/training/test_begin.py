"""A new draft with projections of its own begins with its target's logits, scaled ones included (Granite, Cohere)."""

import pytest
import torch

from outdraft.core.learner_registry import find_learner
from outdraft.testing.tiny import random_decoder
from outdraft.training.lessons import Teacher
from tests.helpers.tiny_families import tiny_config

from .toys import lesson_rows, rows

HEADS = ("medusa", "hydra", "amphista", "redrafter")


@pytest.fixture(params=["granite", "cohere2"])
def target(request):
    made = random_decoder(tiny_config(request.param, layers=3), dtype=torch.float32, exact=False)
    assert made.config.logit_scale != 1
    return made


@pytest.mark.parametrize("kind", HEADS)
def test_heads_begin_as_what_the_target_said_before(kind, target):
    method = find_learner(kind)
    learner = method.new(method.options(), target, 0)
    with torch.no_grad():
        lesson = Teacher(target, learner.taps).lesson(lesson_rows(rows(2)))
        first = learner.look(lesson).guesses[0]
        said = target.logits(lesson.states.unflatten(0, lesson.shape)[:, :-1].flatten(0, 1))
    torch.testing.assert_close(first.head(first.states), said)


def test_other_projections_begin_as_the_targets_head(target):
    states = torch.randn(5, target.config.hidden_size, generator=torch.Generator().manual_seed(0))
    said = target.head(states).detach()
    ctc, eagle3 = find_learner("ctc"), find_learner("eagle3")
    slots = ctc.new(ctc.options(), target, 0).module
    torch.testing.assert_close(slots.logits(states)[:, :-1].detach(), said)
    small = eagle3.new(eagle3.options(draft_vocab_size=7), target, 0)
    torch.testing.assert_close(small.net.lm_head(states).detach(), said[:, :7])
    counts = torch.arange(target.config.vocab_size)
    eagle3.choose_vocab(small, counts)
    torch.testing.assert_close(small.net.lm_head(states).detach(), said[:, small.net.vocab])
