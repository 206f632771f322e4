"""Train Hydra's heads on a frozen target: head i reads the state of row r and the text's tokens r + 1 to r + i + 1.

Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109; the teacher's whole distribution is the loss of its
Hydra++, whose further layer is not here. A head weighs `decay` of the one before.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.learner import LearnMethod, Lesson
from outdraft.core.ranges import check_range
from outdraft.drafters.hydra.net import MODEL_TYPE, HydraNet, load_hydra, save_hydra
from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.heads.learn import HeadLearner, begin_as, inflated, widen_into
from outdraft.models.base import Decoder


@dataclass(frozen=True, slots=True, kw_only=True)
class HydraLearning:
    """How many heads there are, and how much each weighs."""

    num_heads: int = 4  # tokens that are guessed
    decay: float = 0.8  # weight of a head against the one before

    def __post_init__(self) -> None:
        check_range(self, "num_heads", least=1, most=64)
        check_range(self, "decay", least=0.0, most=1.0)


def learner(net: HydraNet, target: Decoder, options: HydraLearning) -> HeadLearner:
    """The heads under their frozen target."""

    def states(normed: Tensor, lesson: Lesson, head: int, source: Tensor) -> Tensor:
        ids = lesson.ids[:, :-1].flatten()
        since = [source + i for i in range(1, head + 2)]
        embeds = [target.embed(ids[rows], lesson.positions[rows]).detach() for rows in since]
        return net.states(normed, embeds)

    return HeadLearner(net, target, states, lambda place: save_hydra(net, place, target.dtype), decay=options.decay)


def new(options: HydraLearning, target: Decoder, seed: int) -> HeadLearner:
    """Fresh heads: mixing matrices of zeros, projections as the target's head."""
    known = target.config
    config = HeadConfig(
        tap=known.num_layers, hidden_size=known.hidden_size, vocab_size=known.vocab_size, num_heads=options.num_heads,
    )  # fmt: skip
    net = HydraNet(config, torch.float32, target.device)
    begin_as(net, target)
    return learner(net, target, options)


def load(options: HydraLearning, target: Decoder, directory: Path) -> HeadLearner:
    """Heads that were trained before. Raises `CapabilityError` for those of another target."""
    net, known = load_hydra(directory, torch.float32, target.device), target.config
    net.config.require(known.num_layers, known.hidden_size, known.vocab_size, whose="Hydra heads")
    return learner(net.train().requires_grad_(True), target, options)


def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """The heads of `target` inflated by `width` and `depth`, which guess the same."""
    net = load_hydra(head_dir, target.dtype)
    big = HydraNet(inflated(net.config, target, width, depth), target.dtype)
    widen_into(big, net, hidden_size=net.config.hidden_size, width=width)
    save_hydra(big, out_dir)


LEARN = LearnMethod(
    summary="heads on the target's last state, each of which knows the tokens before", options=HydraLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, inflate=inflate,
)  # fmt: skip
