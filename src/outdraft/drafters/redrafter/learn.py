"""Train ReDrafter's head on a frozen target: unrolled over the text's own tokens.

Cheng et al., "Recurrent drafter", 2024, https://arxiv.org/abs/2403.09919, which learns from the target's distribution
too (its distillation). A step weighs `decay` of the one before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.learner import LearnMethod, Lesson
from outdraft.drafters.redrafter.net import MODEL_TYPE, ReDrafterConfig, ReDrafterNet, load_redrafter, save_redrafter
from outdraft.drafters.shared.heads.learn import HeadLearner, begin_as, inflated, widen_into
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class ReDrafterLearning:
    """How far it is unrolled, of which size it is, and how much a step weighs."""

    num_steps: int = 5  # tokens that are guessed
    num_layers: int = 2  # behind the recurrence: one that mixes, and residual ones
    own_projections: bool = True  # False: the target's head stands in for them, and the heads are small
    decay: float = 0.8  # weight of a step against the one before
    noise: float = 0.0  # half the width of the uniform noise that is added to the states in training

    def __post_init__(self) -> None:
        check_range(self, "num_steps", least=1, most=64)
        check_range(self, "num_layers", least=1, most=16)
        check_range(self, "decay", least=0.0, most=1.0)
        check_range(self, "noise", least=0.0)


def learner(net: ReDrafterNet, target: Decoder, options: ReDrafterLearning) -> HeadLearner:
    """The head under its frozen target."""

    def states(last: Tensor, lesson: Lesson) -> Callable[[int, Tensor], Tensor]:
        ids, row = lesson.ids[:, :-1].flatten(), torch.arange(len(last), device=last.device)
        unrolled, s = list[Tensor](), last
        for step in range(net.config.num_heads):
            token = (row + step + 1).clamp_max(len(last) - 1)  # rows that no text follows so far are not asked about
            s = net.step(s, target.embed(ids[token], lesson.positions[token]).detach())
            unrolled.append(s)
        return lambda head, source: net.mixed(last[source], unrolled[head][source])

    return HeadLearner(
        net, target, states, lambda place: save_redrafter(net, place, target.dtype), decay=options.decay,
        noise=options.noise,
    )  # fmt: skip


def new(options: ReDrafterLearning, target: Decoder, seed: int) -> HeadLearner:
    """A fresh head: the recurrence is noise, what it adds to the state zeros, the projection the target's head."""
    known = target.config
    config = ReDrafterConfig(
        tap=known.num_layers, hidden_size=known.hidden_size, vocab_size=known.vocab_size, num_heads=options.num_steps,
        num_layers=options.num_layers, own_projections=options.own_projections,
    )  # fmt: skip
    net = ReDrafterNet(config, torch.float32, target.device)
    begin_as(net, target)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in (net.state.weight, net.token.weight):
            weight.copy_(torch.randn(weight.shape, generator=generator) * weight.shape[1] ** -0.5)
    return learner(net, target, options)


def load(options: ReDrafterLearning, target: Decoder, directory: Path) -> HeadLearner:
    """A head that was trained before. Raises `CapabilityError` for one of another target."""
    net, known = load_redrafter(directory, torch.float32, target.device), target.config
    net.config.require(known.num_layers, known.hidden_size, known.vocab_size, whose="a ReDrafter head")
    return learner(net.train().requires_grad_(True), target, options)


def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """The head of `target` inflated by `width` and `depth`, which guesses the same."""
    net = load_redrafter(head_dir, target.dtype)
    big = ReDrafterNet(inflated(net.config, target, width, depth), target.dtype)
    widen_into(big, net, hidden_size=net.config.hidden_size, width=width)
    save_redrafter(big, out_dir)


LEARN = LearnMethod(
    summary="one small recurrent head on the target's last state, unrolled over the text", options=ReDrafterLearning,
    new=new, load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, inflate=inflate,
)  # fmt: skip
