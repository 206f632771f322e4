"""A layer that is applied to its own output: trees, chains that are drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from contracts.sides import random_heads, stutterer

from outdraft.drafters.mtp.learn import MtpLearning, new
from outdraft.models.base import Decoder
from outdraft.testing.spec_table import DrafterRow

mtp_net = random_heads("mtp")


def normed_token(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """Its output is the embedding of the token that came: it says tokens again."""
    learner = new(MtpLearning(), target, 0)
    width = target.config.hidden_size
    with torch.no_grad():
        for name, parameter in learner.module.named_parameters():
            parameter.fill_(1) if "norm" in name else parameter.zero_()
        learner.module.get_parameter("fc.weight")[:, :width] = torch.eye(width)
    learner.save(directory)
    return {"model": str(directory)}


ROWS = [
    DrafterRow(drafter="mtp", side=mtp_net),
    DrafterRow(drafter="mtp", label="chain", side=mtp_net, options={"width": 1, "sample": "match"}),
]
GROUNDS = [DrafterRow(drafter="mtp", target=stutterer, side=normed_token)]
