"""A network on the target's hidden states: trees, chains, and trees that are drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contracts.sides import randomise, stutterer
from contracts.taught import taught

from outdraft.drafters.eagle.net import EagleConfig, EagleNet, save_eagle
from outdraft.models.networks.base import Decoder
from outdraft.testing.spec_table import DrafterRow


def eagle_net(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random network on two taps."""
    config = EagleConfig(
        taps=(0, 2),
        hidden_size=target.config.hidden_size,
        vocab_size=target.config.vocab_size,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
        intermediate_size=24,
        max_len=target.config.max_len,
    )
    net = EagleNet(config, target, target.embedding.dtype)
    randomise(net, seed=8)
    save_eagle(net, directory)
    return {"model": str(directory)}


ROWS = [
    DrafterRow(drafter="eagle", side=eagle_net),
    DrafterRow(drafter="eagle", label="chain", side=eagle_net, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="eagle", label="sampled", side=eagle_net, options={"width": 2, "sample": "match"}),
]
GROUNDS = [DrafterRow(drafter="eagle", target=stutterer, side=taught("eagle", taps=(0, 2)))]
LEARNING = {"fewer tokens": {"draft_vocab_size": 5}}
