"""What a course refuses before it begins, and which settings a run goes on with."""

import json

import pytest
import torch

from outdraft.core.errors import ConfigError
from outdraft.core.registry import find_learner
from outdraft.models.load import load_model, save_model
from outdraft.testing.tiny import tiny_model
from outdraft.training.course import prepare
from outdraft.training.plan import make_plan

VOCAB = 61
JOINT = {"joint": True, "num_heads": 2}


def write_texts(path, seed, count=40, low=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(low, VOCAB, (count, 40), generator=generator).tolist()
    path.write_text("".join(json.dumps({"prompt_token_ids": row[:2], "token_ids": row[2:]}) + "\n" for row in ids))
    return str(path)


@pytest.fixture
def place(tmp_path):
    save_model(tiny_model(vocab=VOCAB, layers=3, seed=1, dtype=torch.float32), tmp_path / "target")
    write_texts(tmp_path / "texts.jsonl", 1)
    write_texts(tmp_path / "valid.jsonl", 2)
    return tmp_path


def course(place, out="out", *, kind="medusa", **more):
    loop = {"seq_len": 32, "batch_tokens": 128, "micro_tokens": 64, "steps": 6, "warmup": 1, "eval_every": 2}
    plan = {
        "kind": kind, "target": str(place / "target"), "data": (str(place / "texts.jsonl"),),
        "valid": (str(place / "valid.jsonl"),), "out": str(place / out), **more,
        "loop": {**loop, **more.get("loop", {})},
    }  # fmt: skip
    return prepare(make_plan(plan), lambda line: None)


def test_a_changed_target_is_not_written_over_what_the_training_reads(place):
    """A kind that teaches its target writes OUT/target, which is the user's own where OUT is the folder above it."""
    with pytest.raises(ConfigError, match=r"would write the changed target to .*target, which the training reads from"):
        course(place, ".", options=JOINT)
    assert course(place, ".")  # other kinds write nothing there
    (place / "linked").mkdir()
    (place / "linked/target").symlink_to(place / "target")
    with pytest.raises(ConfigError, match="which the training reads from: name another directory"):
        course(place, "linked", options=JOINT)


def test_a_changed_target_is_not_written_over_another_model(place):
    save_model(tiny_model(vocab=VOCAB, layers=2, seed=5, dtype=torch.float32), place / "out/target")
    with pytest.raises(ConfigError, match=r"would write the changed target to .*target, which holds a model"):
        course(place, options=JOINT)
