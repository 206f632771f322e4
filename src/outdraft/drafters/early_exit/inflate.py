"""The exit head of a bigger target that computes the same (`models/remake/inflate.py`)."""

from dataclasses import replace
from pathlib import Path

import torch

from outdraft.drafters.early_exit.net import EarlyExitHead, load_exit_head, save_exit_head
from outdraft.drafters.shared.learning.inflate import layers_after, widen
from outdraft.models.networks.base import Decoder


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the head in `head_dir` for `target`, inflated by `width` and `depth`."""
    head = load_exit_head(head_dir, target.dtype)
    config = replace(
        head.config,
        exit_layer=layers_after(head.config.exit_layer, target.config.num_layers, depth),
        hidden_size=head.config.hidden_size * width,
        inner_size=head.config.inner_size * width,
    )
    big = EarlyExitHead(config, head.up.dtype)
    for name, parameter in big.named_parameters():
        parameter.copy_(widen(head.get_parameter(name), width))
    save_exit_head(big, out_dir)
