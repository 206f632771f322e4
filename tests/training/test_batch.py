"""How many tokens a step learns from where no option says it."""

import json

import pytest
import torch

from lab.zoo.pretrain import NextToken
from lab.zoo.recipe import read_recipe
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.course import batch_for, prepare
from outdraft.training.objective import Evaluation
from outdraft.training.plan import make_plan
from tests.training.toys import toy_decoder, toy_loop


@pytest.mark.parametrize(
    ("tokens", "length", "workers", "batch"),
    [
        (300_000, 256, 1, 1024),  # few texts: as many steps as small batches give
        (2_000_000, 256, 1, 1792),  # a thousandth, in whole rows
        (2_000_000, 256, 2, 1536),  # as many rows for each worker
        (50_000_000, 512, 1, 4096),
        (50_000_000, 2048, 3, 6144),  # a row for each worker is the least
        (0, 4096, 1, 4096),
    ],
)
def test_a_step_has_a_thousandth_of_the_text_in_whole_rows(tokens, length, workers, batch):
    assert batch_for(tokens, length, workers) == batch


@pytest.mark.parametrize(
    ("tokens", "loop", "batch", "steps", "says"),
    [
        (0, {}, 1024, 3, ""),
        (0, {"batch_tokens": 512}, 512, 6, ""),
        (0, {"final_seq_len": 40}, 1000, 3, ""),
        (0, {"batch_tokens": 63}, 32, 110, "batch_tokens=63: a step takes 32, whole rows of 32"),
        (3, {}, 1024, 1, "tokens=3: less than a step, which takes 1024"),
    ],
)
def test_a_step_takes_whole_rows(tokens, loop, batch, steps, says, tmp_path):
    save_model(tiny_model(vocab=61, layers=2, seed=1, dtype=torch.float32), tmp_path / "target")
    lines = (json.dumps({"token_ids": [(i * j) % 60 for j in range(1, 41)]}) for i in range(1, 100))
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    plan = {
        "kind": "medusa",
        "target": str(tmp_path / "target"),
        "data": (str(tmp_path / "texts.jsonl"),),
        "out": str(tmp_path / "out"),
        "options": {"num_heads": 2},
        "held_out": 0.05,
        "tokens": tokens,
        "loop": {"seq_len": 32, "micro_tokens": 64, **loop},
    }
    said = []
    config = prepare(make_plan(plan), said.append).loop.config
    assert (config.batch_tokens, config.steps) == (batch, steps)
    assert "\n".join(said[1:]) == says


def test_tokens_are_those_of_whole_rows(tmp_path):
    loop = toy_loop(
        NextToken(toy_decoder()),
        tmp_path,
        steps=6,
        batch_tokens=95,
        final_seq_len=24,
        decay_at=4,
        decay_share=0.5,
        eval_every=6,
        evaluate=lambda: Evaluation(score=0.0, line=""),
    )
    loop.run()
    assert loop.tokens == 4 * 5 * 16 + 2 * 3 * 24 == json.loads((tmp_path / "log.jsonl").read_text())["tokens"]
    assert loop.journal.running(0) == {} and loop.journal._tokens == loop.tokens


def test_a_target_says_its_own(tmp_path):
    (tmp_path / "data.toml").write_text("")
    (tmp_path / "t.toml").write_text('kind = "pretrain"\nname = "t"\n[loop]\nsteps = 3\nbatch_tokens = 0\n')
    with pytest.raises(ConfigError, match=r"batch_tokens = 0 in \[loop\] of .*t\.toml: say how many"):
        read_recipe(tmp_path / "t.toml")
