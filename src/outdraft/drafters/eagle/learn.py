"""Train EAGLE's network on a frozen target, on its own outputs too (training-time test).

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840.

How it is unrolled: `shared/features/learn.py`.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.core.learner import LearnMethod
from outdraft.drafters.eagle.inflate import inflate
from outdraft.drafters.eagle.net import MODEL_TYPE, EagleConfig, EagleNet, load_eagle, save_eagle
from outdraft.drafters.shared.features.learn import FeatureLearner, falling, target_taps
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleLearning:
    """The network's shape, and how deep it is unrolled. A size of 0 is the target's own."""

    taps: tuple[int, ...] = ()  # the states after so many layers; (): 2, half, and three before the last
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    num_steps: int = 4  # unrolled steps
    decay: float = 0.8  # weight of a step against the one before

    def __post_init__(self) -> None:
        check_range(self, "num_heads", "num_kv_heads", "head_dim", "intermediate_size", least=0)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "decay", least=0.0, most=1.0)


def learner(net: EagleNet, target: Decoder, options: EagleLearning) -> FeatureLearner:
    """The network under its frozen target."""
    return FeatureLearner(
        net, target, lambda place: save_eagle(net, place, target.dtype),
        weights=falling(options.num_steps, options.decay),
    )  # fmt: skip


def new(options: EagleLearning, target: Decoder, seed: int) -> FeatureLearner:
    """A fresh network; its last norm starts as the target's."""
    known = target.config
    taps = target_taps(options.taps, known.num_layers)
    config = EagleConfig(
        taps=taps, hidden_size=known.hidden_size, vocab_size=known.vocab_size,
        num_heads=options.num_heads or known.num_heads, num_kv_heads=options.num_kv_heads or known.num_kv_heads,
        head_dim=options.head_dim or known.head_dim,
        intermediate_size=options.intermediate_size or known.intermediate_size,
        max_len=known.max_len, norm_eps=known.norm_eps,
    )  # fmt: skip
    net = EagleNet(config, target, torch.float32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1)
            else:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
        net.norm.weight.copy_(target.final_norm.weight)  # type: ignore[arg-type]
    return learner(net, target, options)


def load(options: EagleLearning, target: Decoder, directory: Path) -> FeatureLearner:
    """A network that was trained before."""
    net = load_eagle(directory, target, torch.float32)
    return learner(net.train().requires_grad_(True), target, options)


LEARN = LearnMethod(
    summary="a one-layer network on the target's states, unrolled on its own outputs", options=EagleLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, hands_states=True, model_type=MODEL_TYPE, inflate=inflate,
)  # fmt: skip
