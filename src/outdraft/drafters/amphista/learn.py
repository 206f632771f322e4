"""Train Amphista's layers, slots and heads on a frozen target: all slots of a row at once.

Li et al., "Amphista", 2024, https://arxiv.org/abs/2406.13170: the cross-entropy of the text's tokens
(`--loss cross_entropy=1`), a head weighing `decay` of the one before; ours by default the target's whole distribution.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.learner import LearnMethod, Lesson
from outdraft.drafters.amphista.net import MODEL_TYPE, AmphistaConfig, AmphistaNet, load_amphista, save_amphista
from outdraft.drafters.shared.heads.learn import HeadLearner, begin_as, inflated, stem_outputs, widen_into
from outdraft.drafters.shared.heads.slots import begin_slots
from outdraft.drafters.shared.heads.stem import begin_stem, stem_sizes
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class AmphistaLearning:
    """How many heads there are, what they see of each other, and how much each weighs."""

    num_heads: int = 4  # tokens that are guessed
    num_layers: int = 2  # that adapt the target's states; the last one reads the pending token
    bidirectional: bool = True  # the slots see each other; false: each itself alone, with as many parameters
    own_projections: bool = True  # False: the target's head stands in for them, and the heads are small
    decay: float = 0.8  # weight of a head against the one before
    noise: float = 0.0  # half the width of the uniform noise that is added to the states in training

    def __post_init__(self) -> None:
        check_range(self, "num_heads", least=1, most=64)
        check_range(self, "num_layers", least=1, most=16)
        check_range(self, "decay", least=0.0, most=1.0)
        check_range(self, "noise", least=0.0)


def learner(net: AmphistaNet, target: Decoder, options: AmphistaLearning) -> HeadLearner:
    """The network under its frozen target."""

    def states(last: Tensor, lesson: Lesson) -> Callable[[int, Tensor], Tensor]:
        slots = net.slots(stem_outputs(net.stem, last, lesson, target))  # [B * T, K, D]
        return lambda head, source: slots[source, head]

    return HeadLearner(
        net, target, states, lambda place: save_amphista(net, place, target.dtype), decay=options.decay,
        noise=options.noise,
    )  # fmt: skip


def new(options: AmphistaLearning, target: Decoder, seed: int) -> HeadLearner:
    """A fresh network: what is added to a state begins as zeros, projections as the target's head."""
    known = target.config
    config = AmphistaConfig(
        tap=known.num_layers, hidden_size=known.hidden_size, vocab_size=known.vocab_size, num_heads=options.num_heads,
        bidirectional=options.bidirectional, own_projections=options.own_projections,
        **stem_sizes(known, options.num_layers),
    )  # fmt: skip
    net = AmphistaNet(config, torch.float32, target.device)
    begin_as(net, target)
    begin_stem(net.stem, seed)
    begin_slots(net.slots, seed + 1)
    return learner(net, target, options)


def load(options: AmphistaLearning, target: Decoder, directory: Path) -> HeadLearner:
    """A network that was trained before. Raises `CapabilityError` for one of another target."""
    net, known = load_amphista(directory, torch.float32, target.device), target.config
    net.config.require(known.num_layers, known.hidden_size, known.vocab_size, whose="Amphista heads")
    return learner(net.train().requires_grad_(True), target, options)


def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """The network of `target` inflated by `width` and `depth`, which guesses the same."""
    net = load_amphista(head_dir, target.dtype)
    big = AmphistaNet(inflated(net.config, target, width, depth), target.dtype)
    widen_into(big, net, hidden_size=net.config.hidden_size, width=width)
    save_amphista(big, out_dir)


LEARN = LearnMethod(
    summary="heads on the target's last state that see each other before they guess", options=AmphistaLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, inflate=inflate,
)  # fmt: skip
