"""A network on the target's hidden states: trees, chains, and trees that are drawn."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from contracts.sides import quiet_start, randomise

from outdraft.drafters.eagle.net import EagleConfig, EagleNet, save_eagle
from outdraft.models.base import Decoder
from outdraft.nn.context import CausalContext
from outdraft.testing.spec_table import DrafterRow


def eagle_net(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random network on two taps."""
    config = EagleConfig(
        taps=(0, 2), hidden_size=target.config.hidden_size, vocab_size=target.config.vocab_size, num_heads=2,
        num_kv_heads=1, head_dim=8, intermediate_size=24, max_len=target.config.max_len,
    )  # fmt: skip
    net = EagleNet(config, target, target.embedding.dtype)
    randomise(net, seed=8)
    save_eagle(net, directory)
    return {"model": str(directory)}


def seeing_copy(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The network that continues `quiet_start` nearly as that does: its layer is the target's last.

    Pair i holds the embedding of token i + 1, as the target's last layer does at position i + 1. The states that it is
    given are left out; its own, which stand in for them behind the text, are taken away again by `join`.
    """
    config, last = target.config, target.layers[-1]
    shape = EagleConfig(
        taps=(0, 2), hidden_size=config.hidden_size, vocab_size=config.vocab_size, num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads, head_dim=config.head_dim, intermediate_size=config.intermediate_size,
        max_len=config.max_len,
    )  # fmt: skip
    net = EagleNet(shape, target, target.embedding.dtype)
    randomise(net, seed=8)
    ids = torch.arange(config.vocab_size)
    states = target.run(target.embed(ids, ids), ids, CausalContext(1, len(ids))).hidden
    width = config.hidden_size
    with torch.no_grad():
        net.block.load_state_dict(last.state_dict())
        net.norm.weight.copy_(target.final_norm.weight)
        net.fusion.weight.zero_()
        net.token_norm.weight.fill_(float(target.embedding.pow(2).mean().sqrt()))
        net.feature_norm.weight.fill_(1.0)
        net.join.weight.copy_(torch.cat((torch.eye(width), -states.pow(2).mean().sqrt() * torch.eye(width)), 1))
    save_eagle(net, directory)
    return {"model": str(directory)}


ROWS = [
    DrafterRow(drafter="eagle", side=eagle_net),
    DrafterRow(drafter="eagle", label="chain", side=eagle_net, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="eagle", label="sampled", side=eagle_net, options={"width": 2, "sample": "match"}),
]
GROUNDS = [DrafterRow(drafter="eagle", target=quiet_start, side=seeing_copy)]
