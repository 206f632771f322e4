"""Train an MTP layer to be applied to its own output, on a frozen target.

Cai et al., "FastMTP", 2025, https://arxiv.org/abs/2509.18362: one layer for all steps, three steps, each of them beta =
0.6 as heavy as the one before. What is compared is the target's whole distribution, or what `--loss` says.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from outdraft.drafters.mtp.formats import FORMATS
from outdraft.drafters.mtp.net import ARCHITECTURE, MtpConfig, MtpNet, load_mtp, save_mtp
from outdraft.drafters.shared.features.learn import LayerLearning, begin, falling, learn_features
from outdraft.drafters.shared.learning.inflate import widen, widen_layer, wider
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.inflate import inflate_decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLearning(LayerLearning):
    """The layer's shape, and how often it is applied. A size of 0 is the target's own."""

    qk_norm: bool = False  # norms on queries and keys, as in Qwen3
    num_steps: int = 3
    beta: float = 0.6  # weight of a step against the one before

    def __post_init__(self) -> None:
        LayerLearning.__post_init__(self)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "beta", least=0.0, most=1.0)


def _new(options: MtpLearning, target: Decoder, seed: int) -> MtpNet:
    """A fresh layer; its last norm starts as the target's."""
    layers = options.layers(target.config, qk_norm=options.qk_norm)
    net = MtpNet(MtpConfig(layers=layers, tap=target.config.num_layers), target, vocab=options.vocab(target))
    begin(net, seed)
    with torch.no_grad():
        net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    return net


def _load(directory: Path, target: Decoder) -> MtpNet:
    """A layer that was trained before, here or with its target."""
    return load_mtp(directory, target, torch.float32).train().requires_grad_(True)


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the network in `head_dir` for `target`, inflated by `width` and `depth`."""
    net = load_mtp(head_dir, target)
    layers = net.config.layers
    config = replace(net.config, layers=wider(layers, width), tap=depth)
    grown = inflate_decoder(target, width=width, depth=depth)
    big = MtpNet(config, grown, net.fc.weight.dtype, vocab=net.vocab)
    for name, parameter in big.named_parameters():
        small = net.get_parameter(name)
        wide = widen_layer(name, small, layers, width, states=2 if name == "fc.weight" else 1)
        if name == "norm.weight" and target.config.tie_embeddings:
            wide = widen(small, width) / width  # the head is the embedding, which is repeated and not divided
        parameter.copy_(wide)
    save_mtp(big, out_dir)


LEARN = learn_features(
    MtpLearning,
    _new,
    _load,
    save_mtp,
    lambda options: falling(options.num_steps, options.beta),
    summary="a multi-token-prediction layer, trained to be applied to its own output",
    model_type=ARCHITECTURE,
    formats=FORMATS,
    inflate=inflate,
)
