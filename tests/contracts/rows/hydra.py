"""Heads on the target's last state: trees, and chains that are drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from contracts.sides import randomise, stutterer

from outdraft.drafters.hydra.learn import HydraLearning, new
from outdraft.models.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def heads(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Random ones."""
    learner = new(HydraLearning(num_heads=4), target, 0)
    randomise(learner.module, seed=9)
    learner.save(directory)
    return {"model": str(directory)}


def echoes(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Heads that say what the target said last: right where it says a token again."""
    learner = new(HydraLearning(num_heads=4), target, 0)
    with torch.no_grad():
        learner.module.norm.weight.copy_(target.final_norm.weight)
    learner.save(directory)
    return {"model": str(directory)}


ROWS = [
    DrafterRow(drafter="hydra", side=heads),
    DrafterRow(drafter="hydra", label="chain", side=heads, options={"width": 1, "sample": "match"}),
]
GROUNDS = [DrafterRow(drafter="hydra", target=stutterer, side=echoes)]
