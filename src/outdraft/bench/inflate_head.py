"""The trained head of a small target, made to fit the target that `models.inflate` makes of it: the same guesses.

    channels      k times, as the target's are; a matrix that reads several states (taps; embedding and feature) reads
                  k copies of each
    exit, taps    "after t layers" becomes the place where the inflated target has done t real layers and the identity
                  layers behind them, so that an exit keeps its share of the depth

So a head costs what a head of that target would: an EAGLE network one target layer and its joining matrices. Kept
small, on the first copy of the channels, it would guess the same for less than any real one. Data in and out:
directories.
"""

import json
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.drafters.eagle import net as eagle
from outdraft.drafters.early_exit import net as early_exit
from outdraft.models.base import Decoder
from outdraft.models.inflate import inflate_decoder, spread
from outdraft.models.load import load_model


def is_head(directory: Path) -> bool:
    """Whether the directory holds an EAGLE network or an exit head, which belong to one target."""
    path = directory / "config.json"
    kinds = (eagle.MODEL_TYPE, early_exit.MODEL_TYPE)
    return path.exists() and json.loads(path.read_text(encoding="utf-8")).get("model_type") in kinds


@torch.no_grad()
def inflate_head(head_dir: Path, target_dir: Path, out_dir: Path, *, width: int = 1, depth: int | None = None) -> None:
    """Write to `out_dir` the head in `head_dir` for the target in `target_dir`, inflated by `width` and `depth`."""
    target = load_model(target_dir)
    num_layers = target.config.num_layers
    depth = num_layers if depth is None else depth
    kind = json.loads((head_dir / "config.json").read_text(encoding="utf-8")).get("model_type")
    if kind == early_exit.MODEL_TYPE:
        small = early_exit.load_exit_head(head_dir, target.dtype)
        early_exit.save_exit_head(inflate_exit(small, num_layers, width=width, depth=depth), out_dir)
    else:
        net = eagle.load_eagle(head_dir, target)
        eagle.save_eagle(inflate_eagle(net, target, width=width, depth=depth), out_dir)


def layers_after(done: int, num_layers: int, depth: int) -> int:
    """How many layers of the inflated target end where `done` of `num_layers` did."""
    return sum(layer < done for layer, _ in spread(num_layers, depth))


def inflate_exit(
    head: early_exit.EarlyExitHead, num_layers: int, *, width: int, depth: int
) -> early_exit.EarlyExitHead:
    """The exit head of the bigger target."""
    config = replace(
        head.config,
        exit_layer=layers_after(head.config.exit_layer, num_layers, depth),
        hidden_size=head.config.hidden_size * width,
        inner_size=head.config.inner_size * width,
    )
    big = early_exit.EarlyExitHead(config, head.up.dtype)
    for name, parameter in big.named_parameters():
        parameter.copy_(_widen(head.get_parameter(name), width, 1))
    return big


def inflate_eagle(net: eagle.EagleNet, target: Decoder, *, width: int, depth: int) -> eagle.EagleNet:
    """The network of the bigger target."""
    old = net.config
    config = replace(
        old,
        taps=tuple(layers_after(tap, target.config.num_layers, depth) for tap in old.taps),
        hidden_size=old.hidden_size * width,
        num_heads=old.num_heads * width,
        num_kv_heads=old.num_kv_heads * width,
        intermediate_size=old.intermediate_size * width,
    )
    big = eagle.EagleNet(config, inflate_decoder(target, width=width), net.join.dtype)
    states = {"fusion.weight": len(old.taps), "join.weight": 2}
    heights = {
        "block.qkv.weight": [heads * old.head_dim for heads in (old.num_heads, old.num_kv_heads, old.num_kv_heads)],
        "block.up.weight": [old.intermediate_size] * 2,
    }
    for name, parameter in big.named_parameters():
        wide = _widen(net.get_parameter(name), width, states.get(name, 1), heights.get(name))
        if name == "norm.weight" and target.config.tie_embeddings:
            wide = wide / width  # the head is the embedding, which is repeated and not divided
        parameter.copy_(wide)
    return big


def _widen(small: nn.Parameter, width: int, states: int, heights: list[int] | None = None) -> Tensor:
    """A norm, or a matrix that reads `states` states side by side and writes parts of these heights."""
    if small.dim() == 1:
        return small.repeat(width)
    columns = torch.cat([part.repeat(1, width) for part in small.chunk(states, 1)], 1) / width
    parts = torch.split(columns, heights or [columns.shape[0]])
    return torch.cat([part.repeat(width, 1) for part in parts])
