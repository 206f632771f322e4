"""Train an EAGLE-3 network on a frozen target, on its own outputs too (training-time test).

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840: seven steps, each 0.8 of the one before, no distance of
features. The distribution that is learned is the target's, renormalised inside the draft's vocabulary. What is saved is
a directory in the published layout (`files.py`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from outdraft.drafters.eagle3.formats import FORMATS, MODEL_TYPE, load_eagle3, save_eagle3
from outdraft.drafters.shared.features.fused.learn import (
    FusedLearning,
    begin_fused,
    choose_vocab,
    first_vocab,
    inflate_fused,
    to_be_trained,
)
from outdraft.drafters.shared.features.fused.net import FusedNet, lent_by
from outdraft.drafters.shared.features.learn import falling, learn_features
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import facts_of
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Learning(FusedLearning):
    """The network's shape, and how deep it is unrolled. A size of 0 is the target's own."""

    norm_output: bool = False
    num_steps: int = 4  # unrolled steps; the paper's: 7
    decay: float = 0.8  # weight of a step against the one before

    def __post_init__(self) -> None:
        FusedLearning.__post_init__(self)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "decay", least=0.0, most=1.0)


def _new(options: Eagle3Learning, target: Decoder, seed: int) -> FusedNet:
    """A fresh network."""
    config = options.config(target, norm_output=options.norm_output)
    net = FusedNet(config, torch.float32, target.device, first_vocab(config))
    begin_fused(net, target, seed)
    return net


def _load(directory: Path, target: Decoder) -> FusedNet:
    """A network that was trained before, here or elsewhere."""
    return to_be_trained(load_eagle3(directory, facts_of(target), torch.float32, lent=lent_by(target)))


def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_eagle3(head_dir, facts_of(target))
    big = inflate_fused(
        net, target, lambda config, device: FusedNet(config, net.dtype, device, net.vocab), width, depth
    )
    save_eagle3(big, out_dir)


LEARN = learn_features(
    Eagle3Learning,
    _new,
    _load,
    save_eagle3,
    lambda options: falling(options.num_steps, options.decay),
    summary="the published EAGLE-3 and 3.1: own head, perhaps of fewer tokens, unrolled on its own outputs",
    model_type=MODEL_TYPE,
    formats=FORMATS,
    choose_vocab=lambda learner, counts: choose_vocab(cast(FusedNet, learner.net), learner.target, counts),
    inflate=inflate,
)
