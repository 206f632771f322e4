"""Shared by the model tests: the third-party data, and a plain greedy decoder."""

import os
from pathlib import Path

import pytest
import torch

from outdraft.cache.static import StaticCache
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import Segment


def data_folder(name: str) -> Path:
    root = Path(os.environ.get("OUTDRAFT_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not (root / name).is_dir():
        pytest.skip(f"no {name} in {root}: set OUTDRAFT_DATA to the folder that holds it")
    return root / name


@torch.no_grad()
def greedy(model, prompt: list[int], count: int) -> list[int]:
    config = model.config
    cache = StaticCache(
        config.num_layers, config.num_kv_heads, config.head_dim, model.embedding.dtype, "cpu", config.max_len
    )
    cache.add(0)
    tokens, new = list(prompt), list(prompt)
    while len(tokens) < len(prompt) + count:
        base = cache.length(0)
        cache.reserve(0, len(new))
        context = CachedContext(cache, [Segment(seq=0, start=0, stop=len(new), base=base)])
        logits = model(torch.tensor(new), torch.arange(base, base + len(new)), context)
        cache.commit(0, range(len(new)))
        new = [int(logits[-1].argmax())]
        tokens += new
    return tokens[len(prompt) :]
