"""What learners of a network on the target's last feature share: how it begins, and how it grows with its target."""

from pathlib import Path

import torch

from outdraft.drafters.shared.features.inflate import widen_layer, wider
from outdraft.drafters.shared.features.last_feature import (
    LastFeatureConfig,
    LastFeatureNet,
    load_last_feature,
    save_last_feature,
)
from outdraft.drafters.shared.features.new import begin
from outdraft.drafters.shared.learning.inflate import widen
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.config import ModelConfig
from outdraft.models.remake.inflate import inflate_decoder


def new_last_feature(target: Decoder, seed: int, *, bias: bool, layers: ModelConfig) -> LastFeatureNet:
    """An untrained network of these layers."""
    config = LastFeatureConfig(layers=layers, tap=target.config.num_layers, bias=bias)
    net = LastFeatureNet(config, target)
    begin(net, seed)
    return net


def last_feature_to_train(directory: Path, target: Decoder) -> LastFeatureNet:
    """One that was trained before. Its embeddings, if it brings some, stay as they are."""
    net = load_last_feature(directory, target, torch.float32).train().requires_grad_(True)
    if net.embedding is not None:
        net.embedding.requires_grad_(False)
    return net


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`.

    Where the target's head is its embedding, its final norm divides by `width`, so features are as much smaller, and
    the network's own states with them.
    """
    net = load_last_feature(head_dir, target)
    layers, tied = net.config.layers, target.config.tie_embeddings
    share = 1 / width if tied else 1.0  # of a state of the big network in one of the small
    config = LastFeatureConfig(
        layers=wider(layers, width), tap=depth, bias=net.config.bias, own_embedding=net.config.own_embedding
    )
    big = LastFeatureNet(config, inflate_decoder(target, width=width, depth=depth), net.fc.weight.dtype)
    for name, parameter in big.named_parameters():
        small = net.get_parameter(name)
        if name == "embedding":
            wide = small.repeat(1, width)
        elif name == "fc.weight":
            embeds, features = (widen(part, width) for part in small.chunk(2, 1))
            wide = torch.cat((embeds * share, features), 1)
        elif name == "fc.bias":
            wide = small.repeat(width) * share
        else:
            wide = widen_layer(name, small, layers, width)
            if name.split(".")[-2] in ("out", "down"):
                wide = wide * share
            elif name == "layers.0.qkv.weight":  # it reads the state as it is
                wide = wide / share
        parameter.copy_(wide)
    save_last_feature(big, out_dir)
