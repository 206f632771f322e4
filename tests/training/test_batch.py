"""How many tokens a step learns from where no option says it."""

import json

import pytest
import torch

from lab.zoo.recipe import read_recipe
from outdraft.models.files.load import save_model
from outdraft.options.errors import ConfigError
from outdraft.testing.tiny import tiny_model
from outdraft.training.course import batch_for, prepare
from outdraft.training.plan import make_plan


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
    ("loop", "batch", "steps"), [({}, 1024, 3), ({"batch_tokens": 512}, 512, 6), ({"final_seq_len": 40}, 1000, 3)]
)
def test_a_plan_that_asks_for_no_batch_takes_it(loop, batch, steps, tmp_path):
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
        "loop": {"seq_len": 32, "micro_tokens": 64, **loop},
    }
    config = prepare(make_plan(plan), lambda line: None).loop.config
    assert (config.batch_tokens, config.steps) == (batch, steps)


def test_a_target_says_its_own(tmp_path):
    (tmp_path / "data.toml").write_text("")
    (tmp_path / "t.toml").write_text('kind = "pretrain"\nname = "t"\n[loop]\nsteps = 3\nbatch_tokens = 0\n')
    with pytest.raises(ConfigError, match=r"batch_tokens = 0 in \[loop\] of .*t\.toml: say how many"):
        read_recipe(tmp_path / "t.toml")
