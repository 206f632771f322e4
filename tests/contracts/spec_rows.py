"""The table: one row for each drafter of the catalogue (some have two shapes to prove). A method without a row fails.

Adding a drafter is a file in `src/outdraft/drafters`, a page in `docs/methods`, and a row here.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from outdraft.drafters.eagle.net import EagleConfig, EagleNet, save_eagle
from outdraft.drafters.early_exit.net import EarlyExitConfig, EarlyExitHead, save_exit_head
from outdraft.models.base import Decoder
from outdraft.models.load import save_model
from outdraft.testing.spec_table import DrafterRow
from outdraft.testing.tiny import tiny_model


def smaller_model(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random model of the target's vocabulary, which agrees with it now and then."""
    config = target.config
    save_model(tiny_model(vocab=config.vocab_size, layers=1, max_len=config.max_len, seed=5), directory)
    return {"model": str(directory)}


def twin(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """The target with a little noise on every weight: mostly right, so that long runs are accepted and cut."""
    copy = Decoder(target.config, target.embedding.dtype)
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for ours, theirs in zip(copy.parameters(), target.parameters(), strict=True):
            noise = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
            ours.copy_(theirs + noise * 0.05 * theirs.std())
    save_model(copy, directory / "twin")
    return {"model": str(directory / "twin")}


def exit_head(target: Decoder, directory: Path) -> Mapping[str, Any]:
    """A random exit head after the first layer."""
    width = target.config.hidden_size
    head = EarlyExitHead(EarlyExitConfig(exit_layer=1, hidden_size=width, inner_size=24), target.embedding.dtype)
    randomise(head, seed=7)
    save_exit_head(head, directory)
    return {"model": str(directory)}


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


def randomise(module: nn.Module, seed: int) -> None:
    """Weights wide enough that guesses wander."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(1 + 0.2 * noise if parameter.dim() == 1 else noise * parameter.shape[1] ** -0.5)


ROWS = [
    DrafterRow(drafter="none"),
    DrafterRow(drafter="ngram"),
    DrafterRow(drafter="ngram", label="tree", options={"width": 3}),
    DrafterRow(drafter="lookahead"),
    DrafterRow(drafter="draft_model", side=smaller_model),
    DrafterRow(drafter="draft_model", label="twin", side=twin),
    DrafterRow(drafter="draft_model", label="tree", side=twin, options={"width": 2}),
    DrafterRow(drafter="early_exit", side=exit_head),
    DrafterRow(drafter="early_exit", label="plain", options={"confidence_threshold": 0.2}),
    DrafterRow(drafter="eagle", side=eagle_net),
    DrafterRow(drafter="eagle", label="chain", side=eagle_net, options={"width": 1, "sample": "match"}),
    DrafterRow(drafter="eagle", label="sampled", side=eagle_net, options={"width": 2, "sample": "match"}),
]
