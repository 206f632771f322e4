"""A network on the target's hidden states in the published layout: trees, chains, fewer tokens than the target has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from contracts.sides import randomise, stutterer
from contracts.taught import taught

from outdraft.drafters.eagle3.formats import save_eagle3
from outdraft.drafters.eagle3.learn import LEARN, Eagle3Learning
from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def eagle3_net(target: Decoder, directory: Path, **options: Any) -> Mapping[str, Any]:
    """A random network on two taps."""
    net = LEARN.new(Eagle3Learning(taps=(0, 2), num_heads=2, num_kv_heads=1, head_dim=8, **options), target, 0).net
    randomise(net, seed=8)
    save_eagle3(net, directory, target.dtype)
    return {"model": str(directory)}


def fewer_tokens(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """EAGLE-3.1 over two thirds of the target's tokens."""
    size = max(2, target.config.vocab_size * 2 // 3)
    learner = LEARN.new(
        Eagle3Learning(
            taps=(0, 2), num_heads=2, num_kv_heads=1, head_dim=8, draft_vocab_size=size, fc_norm=True, norm_output=True
        ),
        target,
        0,
    )
    randomise(learner.net, seed=8)
    learner.net.vocab = torch.arange(target.config.vocab_size)[-size:]
    save_eagle3(learner.net, directory, target.dtype)
    return {"model": str(directory)}


ROWS = [
    DrafterRow(drafter="eagle3", side=eagle3_net),
    DrafterRow(drafter="eagle3", label="chain", side=eagle3_net, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="eagle3", label="sampled", side=fewer_tokens, options={"width": 2, "sample": "match"}),
]
GROUNDS = [
    DrafterRow(
        drafter="eagle3", target=stutterer, side=taught("eagle3", taps=(0, 2), num_heads=2, num_kv_heads=1, head_dim=8)
    )
]
