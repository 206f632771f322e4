"""A toy language, toy models and a toy loop for the training tests."""

from pathlib import Path

import numpy as np
import torch

from outdraft.models.base import Decoder, initialise
from outdraft.models.config import llama_config
from outdraft.training.config import LoopConfig
from outdraft.training.data import Sampler, Stream
from outdraft.training.loop import Loop
from outdraft.training.team import Team

VOCAB = 32


def toy_sampler(seed: int = 0) -> Sampler:
    """A stream in which each id is followed by one of three, so there is something to learn."""
    rng = np.random.default_rng(7)
    follow = rng.integers(VOCAB, size=(VOCAB, 3))
    ids = [0]
    for choice in rng.choice(3, size=20_000, p=[0.6, 0.3, 0.1]):
        ids.append(int(follow[ids[-1], choice]))
    return Sampler([Stream(name="toy", ids=np.array(ids, np.uint16), weight=1.0, starts=None)], seed)


def toy_decoder(seed: int = 0, hidden: int = 32, layers: int = 3) -> Decoder:
    config = llama_config(
        vocab_size=VOCAB, hidden_size=hidden, num_layers=layers, num_heads=4, num_kv_heads=2, head_dim=8,
        intermediate_size=48, max_len=64,
    )  # fmt: skip
    return initialise(Decoder(config), seed, std=0.1)


def toy_config(**changes: object) -> LoopConfig:
    given = {
        "steps": 50, "batch_tokens": 256, "micro_tokens": 128, "seq_len": 16, "warmup": 5, "lr": 1e-2, "muon_lr": 1e-2,
        "eval_every": 1000, "eval_tokens": 1024, "save_every": 1000, **changes,
    }  # fmt: skip
    return LoopConfig(**given)  # type: ignore[arg-type]


def toy_loop(objective: object, run_dir: Path, **changes: object) -> Loop:
    return Loop(objective, toy_sampler(), toy_sampler(1), toy_config(**changes), run_dir, Team(), lambda line: None)  # type: ignore[arg-type]


def trained_target(tmp_path: Path, steps: int = 80) -> Decoder:
    from outdraft.training.pretrain import NextToken

    target = toy_decoder(1)
    toy_loop(NextToken(target), tmp_path / "target", steps=steps).run()
    return target.requires_grad_(False)


def rows(count: int = 8, length: int = 17) -> torch.Tensor:
    return toy_sampler(3).rows(0, 0, count, length)
