"""What learners of a network on the target's last feature share: how it begins, and how it grows with its target."""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from outdraft.core.learner import LearnMethod
from outdraft.drafters.shared.features.last_feature import (
    LastFeatureConfig,
    LastFeatureNet,
    load_last_feature,
    save_last_feature,
)
from outdraft.drafters.shared.features.learn import LayerLearning, begin, learn_features
from outdraft.drafters.shared.learning.inflate import widen, widen_layer, wider
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.inflate import inflate_decoder
from outdraft.options.ranges import check_range

Options = TypeVar("Options", bound="LastFeatureLearning")


@dataclass(frozen=True, slots=True, kw_only=True)
class LastFeatureLearning(LayerLearning):
    """The network's shape, and the noise that it learns with. Raises `ConfigError` naming what is out of range."""

    bias: bool = True  # of fc
    noise: float = 0.2  # width of the noise on features in a text of 512 tokens

    def __post_init__(self) -> None:
        LayerLearning.__post_init__(self)
        check_range(self, "noise", least=0.0, most=1000.0)


def learn_last_feature(
    options: type[Options], weights: Callable[[Options], Seq[float]], **more: Any
) -> LearnMethod[Options, Decoder]:
    """How a method trains it: `weights` of each step, and other fields of the method."""
    return learn_features(options, _new, _load, save_last_feature, weights, extrapolates=True, **more)


def _new(options: LastFeatureLearning, target: Decoder, seed: int) -> LastFeatureNet:
    known = target.config
    config = LastFeatureConfig(layers=options.layers(known), tap=known.num_layers, bias=options.bias)
    net = LastFeatureNet(config, target, vocab=options.vocab(target))
    begin(net, seed)
    return net


def _load(directory: Path, target: Decoder) -> LastFeatureNet:
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
    grown = inflate_decoder(target, width=width, depth=depth)
    big = LastFeatureNet(config, grown, net.fc.weight.dtype, vocab=net.vocab)
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
