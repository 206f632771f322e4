"""Train an MTP layer to be applied to its own output, on a frozen target.

Cai et al., "FastMTP", 2025, https://arxiv.org/abs/2509.18362: one layer for all steps, three steps, each of them beta =
0.6 as heavy as the one before. What is compared is the target's whole distribution, or what `--loss` says.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.core.learner import LearnMethod
from outdraft.drafters.mtp.formats import FORMATS
from outdraft.drafters.mtp.inflate import inflate
from outdraft.drafters.mtp.net import ARCHITECTURE, MtpConfig, MtpNet, load_mtp, save_mtp
from outdraft.drafters.shared.features.learn import FeatureLearner, falling
from outdraft.drafters.shared.features.new import begin, like_target
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLearning:
    """The layer's shape, and how often it is applied. A size of 0 is the target's own."""

    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    qk_norm: bool = False  # norms on queries and keys, as in Qwen3
    num_steps: int = 3
    beta: float = 0.6  # weight of a step against the one before

    def __post_init__(self) -> None:
        check_range(self, "num_heads", "num_kv_heads", "head_dim", "intermediate_size", least=0)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "beta", least=0.0, most=1.0)


def _learner(net: MtpNet, target: Decoder, options: MtpLearning) -> FeatureLearner:
    return FeatureLearner(
        net, target, lambda place: save_mtp(net, place, target.dtype),
        weights=falling(options.num_steps, options.beta),
    )  # fmt: skip


def new(options: MtpLearning, target: Decoder, seed: int) -> FeatureLearner:
    """A fresh layer; its last norm starts as the target's."""
    layers = like_target(
        target.config, num_heads=options.num_heads, num_kv_heads=options.num_kv_heads, head_dim=options.head_dim,
        intermediate_size=options.intermediate_size, qk_norm=options.qk_norm,
    )  # fmt: skip
    net = MtpNet(MtpConfig(layers=layers, tap=target.config.num_layers), target)
    begin(net, seed)
    with torch.no_grad():
        net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    return _learner(net, target, options)


def load(options: MtpLearning, target: Decoder, directory: Path) -> FeatureLearner:
    """A layer that was trained before, here or with its target."""
    return _learner(load_mtp(directory, target, torch.float32).train().requires_grad_(True), target, options)


LEARN = LearnMethod(
    summary="a multi-token-prediction layer, trained to be applied to its own output", options=MtpLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, hands_states=True, model_type=ARCHITECTURE, formats=FORMATS,
    inflate=inflate,
)  # fmt: skip
