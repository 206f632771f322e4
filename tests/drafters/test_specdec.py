"""SpecDec: a query for each slot, what is shown of a block in training, and its files."""

from dataclasses import replace

import pytest
import torch
from contracts.sides import randomise

from outdraft.core.learner import Moment
from outdraft.core.learner_registry import find_learner
from outdraft.drafters.specdec.kind import KIND
from outdraft.drafters.specdec.learn import LEARN, SpecDecLearning
from outdraft.engine.naming.recipe import read_recipe
from outdraft.models.networks.port import facts_of
from outdraft.options.errors import ConfigError, ModelLoadError
from outdraft.training.lessons import Teacher
from outdraft.weights.safetensors import read_tensors
from tests.training.toys import draft_loop, draft_objective, lesson_rows, rates, rows, toy_decoder, trained_target

SHAPE = {"num_layers": 1, "block_size": 5}
MOMENT = Moment(step=0, steps=10, seed=1)


def made(target, **options):
    learner = LEARN.new(SpecDecLearning(**SHAPE, **options), target, 0)
    randomise(learner.module, 3)
    return learner, Teacher(target, learner.taps)


def test_every_slot_has_a_query_of_its_own_or_a_token_that_is_shown():
    target = toy_decoder(1)
    net = made(target)[0].net
    anchors, positions = torch.tensor([3, 5]), torch.tensor([7, 2])
    shown = torch.tensor([[-1, 6, -1, -1], [0, -1, -1, 4]])
    found = net.embed(anchors, positions, target.embed, shown=shown).view(2, 5, -1)
    for block, row in zip(found, [[3, None, 6, None, None], [5, 0, None, None, 4]], strict=True):
        for slot, token in enumerate(row):
            wanted = net.mask[slot - 1] if token is None else target.embedding[token]
            torch.testing.assert_close(block[slot], wanted)
    assert len({tuple(query.tolist()) for query in net.mask}) == 4


def test_a_share_of_what_a_block_misses_is_shown_and_not_learned():
    target = toy_decoder(1)
    learner, teacher = made(target, shown_first=0.5, shown_last=0.0)
    text = lesson_rows(rows(4))
    exam = learner.look(teacher.lesson(text)).guesses
    tokens = text.ids[:, 1:].flatten()
    missed = {}
    for step, guess in enumerate(exam):
        wrong = guess.head(guess.states).argmax(-1) != tokens[guess.rows]
        for row in (guess.rows[wrong] - step).tolist():
            missed[row] = missed.get(row, 0) + 1

    def learned(step):
        guesses = learner.look(teacher.lesson(replace(text, moment=replace(MOMENT, step=step)))).guesses
        return [set((guess.rows - depth).tolist()) for depth, guess in enumerate(guesses)]

    whole, some = [set((guess.rows - depth).tolist()) for depth, guess in enumerate(exam)], learned(0)
    for row, count in missed.items():
        shown = sum(row in one and row not in other for one, other in zip(whole, some, strict=True))
        assert shown == count // 2, row
    assert some == learned(0) and learned(10) == whole and any(missed.values())


def test_its_files_hold_the_queries_and_are_no_dflash(tmp_path):
    target = toy_decoder(1)
    learner, _ = made(target)
    learner.save(tmp_path)
    assert read_tensors(tmp_path / "model.safetensors")["slot_embeddings"].shape == (4, 32)
    net = KIND.load(tmp_path, facts_of(target), torch.float32)
    assert net.config.slot_masks and not net.config.own_mask
    torch.testing.assert_close(net.mask, learner.net.mask)
    dflash = find_learner("dflash")
    with pytest.raises(ModelLoadError, match="'specdec', no dflash network"):
        dflash.load(dflash.options(), target, tmp_path)
    assert [one.name for one in LEARN.formats] == ["outdraft"]


def test_the_recipe_is_exact_and_the_published_one_is_not():
    assert read_recipe("specdec").lossless and not read_recipe("specdec_lossy").lossless


def test_training_makes_it_guess_the_text(tmp_path):
    target = trained_target()
    learner = LEARN.new(SpecDecLearning(**SHAPE), target, 0)
    objective = draft_objective(learner, target, cross_entropy=1.0)
    before = rates(objective)
    draft_loop(objective, tmp_path, steps=80).run()
    after = rates(objective)
    assert after[1] > before[1] + 0.2 and after[0] < 0.8 * before[0], (before, after)


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="from_anchor=true"):
        SpecDecLearning(from_anchor=True)
    with pytest.raises(ConfigError, match="shown_first"):
        SpecDecLearning(shown_first=1.5)
