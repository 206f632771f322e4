"""Train the layers of blockwise parallel decoding on a frozen target: layer i learns what comes i + 1 tokens further.

Stern, Shazeer and Uszkoreit, "Blockwise parallel decoding", 2018, https://arxiv.org/abs/1811.03115.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.learner import LearnMethod, Lesson
from outdraft.drafters.blockwise.net import MODEL_TYPE, BlockwiseConfig, BlockwiseNet, load_blockwise, save_blockwise
from outdraft.drafters.shared.heads.learn import HeadLearner, begin_as, inflated
from outdraft.drafters.shared.learning.inflate import widen
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockwiseLearning:
    """How many tokens are guessed, and how wide the layers are."""

    num_heads: int = 4  # tokens that are guessed; a block of the paper has one more, the target's own
    inner_size: int = 0  # of the feed-forward layers; 0: the target's
    decay: float = 1.0  # weight of a layer against the one before
    noise: float = 0.0  # half the width of the uniform noise that is added to the states in training

    def __post_init__(self) -> None:
        check_range(self, "num_heads", least=1, most=64)
        check_range(self, "inner_size", least=0)
        check_range(self, "decay", least=0.0, most=1.0)
        check_range(self, "noise", least=0.0)


def learner(net: BlockwiseNet, target: Decoder, options: BlockwiseLearning) -> HeadLearner:
    """The layers under their frozen target."""

    def states(last: Tensor, lesson: Lesson) -> Callable[[int, Tensor], Tensor]:
        return lambda head, source: net.states(last[source], head)

    return HeadLearner(
        net, target, states, lambda place: save_blockwise(net, place, target.dtype), decay=options.decay,
        noise=options.noise,
    )  # fmt: skip


def new(options: BlockwiseLearning, target: Decoder, seed: int) -> HeadLearner:
    """Fresh layers: what they add to the state begins as zeros."""
    known = target.config
    config = BlockwiseConfig(
        tap=known.num_layers, hidden_size=known.hidden_size, vocab_size=known.vocab_size, num_heads=options.num_heads,
        inner_size=options.inner_size or known.intermediate_size, own_projections=False,
    )  # fmt: skip
    net = BlockwiseNet(config, torch.float32, target.device)
    begin_as(net, target)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in net.up.named_parameters():
            if name.endswith("weight"):
                weight.copy_(torch.randn(weight.shape, generator=generator) * weight.shape[1] ** -0.5)
    return learner(net, target, options)


def load(options: BlockwiseLearning, target: Decoder, directory: Path) -> HeadLearner:
    """Layers that were trained before. Raises `CapabilityError` for those of another target."""
    net, known = load_blockwise(directory, torch.float32, target.device), target.config
    net.config.require(known.num_layers, known.hidden_size, known.vocab_size, whose="blockwise layers")
    return learner(net.train().requires_grad_(True), target, options)


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """The layers of `target` inflated by `width` and `depth`, which guess the same."""
    net = load_blockwise(head_dir, target.dtype)
    config = replace(inflated(net.config, target, width, depth), inner_size=net.config.inner_size * width)
    big = BlockwiseNet(config, target.dtype)
    for name, parameter in big.named_parameters():
        parameter.copy_(widen(net.get_parameter(name), width))
    save_blockwise(big, out_dir)


LEARN = LearnMethod(
    summary="small networks on the target's last state, read by the target's own head", options=BlockwiseLearning,
    new=new, load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, inflate=inflate,
)  # fmt: skip
