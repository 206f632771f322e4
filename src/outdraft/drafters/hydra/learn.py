"""Train Hydra's heads on a frozen target: head i reads the state of row r and the text's tokens r + 1 to r + i + 1.

Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109. Hydra++ is `prefix_layer`, `num_layers=4`, `noise` and
the teacher's whole distribution as the loss, which is the default here. A head weighs `decay` of the one before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.learner import LearnMethod, Lesson
from outdraft.drafters.hydra import formats
from outdraft.drafters.hydra.net import MODEL_TYPE, HydraConfig, HydraNet, load_hydra, save_hydra
from outdraft.drafters.shared.heads.learn import HeadLearner, begin_as, inflated, stem_outputs, widen_into
from outdraft.drafters.shared.heads.stem import begin_stem, stem_sizes
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class HydraLearning:
    """How many heads there are, of which size, and how much each weighs."""

    num_heads: int = 4  # tokens that are guessed
    num_layers: int = 1  # of a head: one that mixes, and residual ones behind it; Hydra++: 4
    prefix_layer: bool = False  # a decoder layer over the target's last states, below the heads; Hydra++: true
    own_projections: bool = True  # False: the target's head stands in for them, and the heads are small
    decay: float = 0.8  # weight of a head against the one before
    noise: float = 0.0  # half the width of the uniform noise that is added to the states in training

    def __post_init__(self) -> None:
        check_range(self, "num_heads", least=1, most=64)
        check_range(self, "num_layers", least=1, most=16)
        check_range(self, "decay", least=0.0, most=1.0)
        check_range(self, "noise", least=0.0)


def learner(net: HydraNet, target: Decoder, options: HydraLearning) -> HeadLearner:
    """The heads under their frozen target."""

    def states(last: Tensor, lesson: Lesson) -> Callable[[int, Tensor], Tensor]:
        ids = lesson.ids[:, :-1].flatten()
        if net.stem is not None:
            last = stem_outputs(net.stem, last, lesson, target)

        def of(head: int, source: Tensor) -> Tensor:
            since = [source + i for i in range(1, head + 2)]
            embeds = [target.embed(ids[rows], lesson.positions[rows]).detach() for rows in since]
            return net.states(last[source], embeds)

        return of

    return HeadLearner(
        net, target, states, lambda place: save_hydra(net, place, target.dtype), decay=options.decay,
        noise=options.noise,
    )  # fmt: skip


def new(options: HydraLearning, target: Decoder, seed: int) -> HeadLearner:
    """Fresh heads: mixing matrices of zeros, projections as the target's head."""
    known = target.config
    config = HydraConfig(
        tap=known.num_layers, hidden_size=known.hidden_size, vocab_size=known.vocab_size, num_heads=options.num_heads,
        num_layers=options.num_layers, own_projections=options.own_projections,
        **stem_sizes(known, int(options.prefix_layer)),
    )  # fmt: skip
    net = HydraNet(config, torch.float32, target.device)
    begin_as(net, target)
    if net.stem is not None:
        begin_stem(net.stem, seed)
    return learner(net, target, options)


def load(options: HydraLearning, target: Decoder, directory: Path) -> HeadLearner:
    """Heads that were trained before. Raises `CapabilityError` for those of another target."""
    net = formats.load(directory, target, torch.float32)
    return learner(net.train().requires_grad_(True), target, options)


def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """The heads of `target` inflated by `width` and `depth`, which guess the same."""
    net = load_hydra(head_dir, target.dtype)
    big = HydraNet(inflated(net.config, target, width, depth), target.dtype)
    widen_into(big, net, hidden_size=net.config.hidden_size, width=width)
    save_hydra(big, out_dir)


LEARN = LearnMethod(
    summary="heads on the target's last state, each of which knows the tokens before", options=HydraLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, formats=formats.FORMATS, inflate=inflate,
)  # fmt: skip
