"""A toy language, toy models and a toy loop for the training tests."""

import copy
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from lab.zoo.streams import Sampler, Stream
from outdraft.learn.losses import mixed
from outdraft.models.files.load import save_model
from outdraft.models.networks.base import Decoder, initialise
from outdraft.models.networks.config import llama_config
from outdraft.training.config import LoopConfig
from outdraft.training.draft import DraftObjective
from outdraft.training.lessons import Teacher
from outdraft.training.loop import Loop
from outdraft.training.packing import PackedRows

VOCAB = 32


def toy_ids(seed: int = 7, size: int = 20_000) -> np.ndarray:
    """A stream in which each id is followed by one of three, so there is something to learn."""
    rng = np.random.default_rng(seed)
    follow = np.random.default_rng(7).integers(VOCAB, size=(VOCAB, 3))
    ids = [0]
    for choice in rng.choice(3, size=size, p=[0.6, 0.3, 0.1]):
        ids.append(int(follow[ids[-1], choice]))
    return np.array(ids, np.uint16)


def toy_sampler(seed: int = 0) -> Sampler:
    return Sampler([Stream(name="toy", ids=toy_ids(), weight=1.0, starts=None)], seed)


def toy_decoder(seed: int = 0, hidden: int = 32, layers: int = 3) -> Decoder:
    config = llama_config(
        vocab_size=VOCAB,
        hidden_size=hidden,
        num_layers=layers,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_len=64,
    )
    return initialise(Decoder(config), seed, std=0.1)


def toy_config(**changes: object) -> LoopConfig:
    given = {
        "steps": 50,
        "batch_tokens": 256,
        "micro_tokens": 256,
        "seq_len": 16,
        "warmup": 5,
        "lr": 1e-2,
        "muon_lr": 1e-2,
        "eval_every": 1000,
        "save_every": 1000,
        **changes,
    }
    return LoopConfig(**given)  # type: ignore[arg-type]


def toy_loop(
    objective: object,
    run_dir: Path,
    data: object = None,
    evaluate: object = None,
    about: object = None,
    dtype: torch.dtype = torch.float32,
    **changes: object,
) -> Loop:
    return Loop(
        objective,
        data or toy_sampler(),
        toy_config(**changes),
        run_dir,
        lambda line: None,
        dtype=dtype,
        evaluate=evaluate,
        listens=False,
        vocab_size=VOCAB,
        about=about,
    )  # type: ignore[arg-type]


def trained_target(steps: int = 60) -> Decoder:
    """A target that has learned the toy language; trained once a process, and every caller has a copy of its own."""
    return copy.deepcopy(_trained(steps))


@cache
def _trained(steps: int) -> Decoder:
    from lab.zoo.pretrain import NextToken

    target = toy_decoder(1)
    with TemporaryDirectory() as place:
        toy_loop(NextToken(target), Path(place), steps=steps).run()
    return target.requires_grad_(False)


def write_trial(place: Path, plan: str) -> Path:
    """A toy target, toy texts of three parts, and a trial of them: `plan` goes on behind the top of its file.

    Its paths are relative to `place`.
    """
    target = toy_decoder()
    with torch.no_grad():
        target.embedding.mul_(3)
    save_model(target, place / "target")
    parts = {"data": "train", "tune": "tune", "test": "test"}
    for seed, name in enumerate(parts.values(), 1):
        ids = toy_ids(seed, 1600)[:1600].reshape(40, 40).tolist()
        lines = [json.dumps({"prompt_token_ids": row[:2], "token_ids": row[2:]}) for row in ids]
        (place / f"{name}.jsonl").write_text("\n".join(lines))
    top = ['target = "target"', *(f'{part} = ["{name}.jsonl"]' for part, name in parts.items()), "tokens = 512"]
    (place / "trial.toml").write_text("\n".join([*top, plan]))
    return place / "trial.toml"


def rows(count: int = 8, length: int = 17) -> torch.Tensor:
    return toy_sampler(3).rows(0, 0, count, length)


def lesson_rows(ids: torch.Tensor) -> PackedRows:
    """Whole rows of one document each, in which everything counts."""
    return PackedRows(ids=ids, documents=torch.zeros_like(ids), counts=torch.ones_like(ids[:, 1:], dtype=torch.bool))


class Lessons:
    """Batches of a sampler as rows for a draft."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    def rows(self, step: int, first: int, count: int, length: int) -> PackedRows:
        return lesson_rows(self.sampler.rows(step, first, count, length))


def draft_objective(learner: object, target: Decoder, **losses: float) -> DraftObjective:
    return DraftObjective(learner, Teacher(target, learner.taps), mixed(losses or {"forward_kl": 1.0}).rows)


def draft_loop(objective: DraftObjective, run_dir: Path, sampler: Sampler | None = None, **changes: object) -> Loop:
    return toy_loop(objective, run_dir, data=Lessons(sampler or toy_sampler()), **changes)


@torch.no_grad()
def rates(objective: DraftObjective, ids: torch.Tensor | None = None) -> list[float]:
    """The loss, then acceptance at each depth, on rows that were not learned from."""
    return objective.loss(lesson_rows(rows(16) if ids is None else ids)).tolist()
