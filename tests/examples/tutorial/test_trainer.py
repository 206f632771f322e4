"""The trainer: a draft learns its target, padding teaches it nothing, and what is no batch is refused."""

import math
import random
import signal

import pytest
import torch
from tutorial import DraftModelTrainer

from outdraft import LLM, SamplingParams
from outdraft.options.errors import ConfigError
from outdraft.training.draft import DraftObjective
from tests.training.toys import lesson_rows


@pytest.mark.slow
def test_a_draft_learns_its_target(models, tmp_path):
    trainer = DraftModelTrainer(models["target"], models["useless"])
    rng = random.Random(3)
    prompts = [[rng.randrange(61) for _ in range(4)] for _ in range(56)]
    rows = trainer.sample_rows(prompts, 24)
    assert rows.shape == (56, 25)
    rates = trainer.distill_knowledge([{"input_ids": rows[:30]}, rows[30:]], num_epochs=5)
    assert len(rates) == 6 and rates[-1] > rates[0] + 0.1
    trainer.save(tmp_path / "draft")
    llm = LLM(models["target"], draft_model=tmp_path / "draft", num_speculative_tokens=4)
    before = LLM(models["target"], draft_model=models["useless"], num_speculative_tokens=4)
    params = SamplingParams(max_tokens=32, temperature=1.0, seed=1, ignore_eos=True)
    asked = [{"prompt_token_ids": prompt} for prompt in prompts[:6]]
    one, other = ([result.stats for result in engine.generate(asked, params)] for engine in (llm, before))
    assert sum(s.num_accepted_tokens for s in one) > sum(s.num_accepted_tokens for s in other)
    with pytest.raises(ConfigError, match="did you mean 'forward_kl'"):
        DraftModelTrainer(models["target"], models["useless"], loss="forward_lk")


def test_temperature_keeps_the_gradients_size(models):
    """T^2: at a high temperature the loss tends to half the mean squared difference of centred logits."""
    rows = torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(1))
    losses = {}
    for temperature in (50.0, 200.0):
        trainer = DraftModelTrainer(models["target"], models["useless"], temperature=temperature)
        losses[temperature] = float(trainer.objective.loss(lesson_rows(rows))[0].detach())
    assert losses[200.0] == pytest.approx(losses[50.0], rel=0.1)


def test_distillation_is_the_training_packages_own(models):
    """Its objective, loop and optimiser; a step changes the draft, and a signal's handler is left alone."""
    trainer = DraftModelTrainer(models["target"], models["useless"])
    assert isinstance(trainer.objective, DraftObjective)
    before, handler = [p.clone() for p in trainer.draft.parameters()], signal.getsignal(signal.SIGINT)
    rows = torch.randint(61, (16, 9), generator=torch.Generator().manual_seed(1))
    rates = trainer.distill_knowledge([rows], num_epochs=2)
    assert len(rates) == 3 and rates == trainer.acceptance and signal.getsignal(signal.SIGINT) is handler
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.draft.parameters(), strict=True))


def random_rows(count, length):
    return torch.randint(61, (count, length), generator=torch.Generator().manual_seed(1))


def test_each_training_returns_its_own_numbers(models):
    trainer = DraftModelTrainer(models["target"], models["useless"])
    rows = random_rows(16, 6)
    first = trainer.distill_knowledge([rows], num_epochs=2)
    second = trainer.distill_knowledge([rows], num_epochs=1)
    assert (len(first), len(second)) == (3, 2) and trainer.acceptance == first + second
    assert second[0] == first[-1], "the second goes on where the first ended"


def padded(rows, lengths, *, left):
    """The rows cut to these lengths, as a data loader hands them over: noise where the mask is 0."""
    ids, mask = random_rows(*rows.shape).flip(0), torch.zeros_like(rows)
    for i, length in enumerate(lengths):
        place = slice(rows.shape[1] - length, None) if left else slice(0, length)
        ids[i, place], mask[i, place] = rows[i, :length], 1
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("left", [False, True])
def test_padding_is_in_no_loss(models, left):
    """Texts of unequal lengths: acceptance is that of their own tokens, and what the padding holds changes nothing."""
    rows, lengths = random_rows(16, 9), [9, 3, 5, 2, 9, 4, 7, 6] * 2
    batch = padded(rows, lengths, left=left)
    told, weights = [], []
    for noise in (0, 1):
        trainer = DraftModelTrainer(models["target"], models["useless"])
        ids = torch.where(batch["attention_mask"] == 1, batch["input_ids"], (batch["input_ids"] + noise) % 61)
        told.append(trainer.distill_knowledge([{**batch, "input_ids": ids}], num_epochs=1))
        weights.append(torch.cat([p.detach().flatten() for p in trainer.draft.parameters()]))
    assert told[0] == told[1] and torch.equal(*weights)
    fresh = DraftModelTrainer(models["target"], models["useless"])
    held = [(i, length - 1) for i, length in enumerate(lengths) if i % 8 == 7]
    alone = sum(fresh.evaluate(rows[i : i + 1, : count + 1]) * count for i, count in held)
    assert told[0][0] == pytest.approx(alone / sum(count for _, count in held), abs=1e-6)


def test_batches_may_differ_in_length(models):
    trainer = DraftModelTrainer(models["target"], models["useless"])
    rates = trainer.distill_knowledge([random_rows(7, 9), random_rows(1, 5), random_rows(2, 7)], num_epochs=1)
    fresh = DraftModelTrainer(models["target"], models["useless"])
    assert rates[0] == pytest.approx(fresh.evaluate(random_rows(1, 5)), abs=1e-6)


def test_what_is_no_batch_is_refused(models):
    trainer = DraftModelTrainer(models["target"], models["useless"])
    before = [p.clone() for p in trainer.draft.parameters()]
    rows = random_rows(16, 5)
    mask = torch.ones_like(rows)
    gap, additive, empty = mask.clone(), mask.float() - 1, mask.clone()
    gap[3, 2] = 0
    additive[0, 4] = -math.inf
    empty[0, 1:] = 0
    negative = rows.clone()
    negative[0, 2] = -100
    for bad, says in (
        ([], "0 rows: give at least 8"),
        ([rows[:7]], "7 rows: give at least 8"),
        ([rows[0]], r"ids of shape \(5,\)"),
        ([{"input_ids": rows, "attention_mask": mask[:, :4]}], r"attention_mask of shape \(16, 4\)"),
        ([{"input_ids": rows, "attention_mask": gap}], "a gap inside a text"),
        ([{"input_ids": rows, "attention_mask": additive}], "other numbers than 0 and 1"),
        ([{"input_ids": rows, "attention_mask": empty}], "row 0 of a batch has 1 ids, 0 below 0"),
        ([negative], "row 0 of a batch has 5 ids, 1 below 0"),
    ):
        with pytest.raises(ConfigError, match=says):
            trainer.distill_knowledge(bad)
    assert trainer.acceptance == [] and all(map(torch.equal, before, trainer.draft.parameters()))
    with pytest.raises(ConfigError, match="temperature=nan"):
        DraftModelTrainer(models["target"], models["useless"], temperature=math.nan)
