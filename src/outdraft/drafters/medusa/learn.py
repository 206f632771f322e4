"""Train Medusa's heads: head i learns what the target says i + 1 tokens further on. The target is frozen (Medusa-1), or
learns with them (`joint`: Medusa-2).

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774: a head weighs 0.8 of the one before. The paper's loss is
the cross-entropy of the text's own tokens (`--loss cross_entropy=1`); ours by default the target's whole distribution.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.learner import Learner, LearnMethod, Lesson
from outdraft.drafters.medusa import formats
from outdraft.drafters.medusa.net import MODEL_TYPE, MedusaConfig, MedusaNet, load_medusa, save_medusa
from outdraft.drafters.shared.heads.joint import Joint, JointLearner
from outdraft.drafters.shared.heads.learn import HeadLearner, begin_as, inflated, widen_into
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.lora import Lora, has_lora, load_lora, new_lora
from outdraft.models.remake.lora_config import LoraConfig
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaLearning:
    """How many heads of which size."""

    num_heads: int = 4  # tokens that are guessed; the paper's: 5
    num_layers: int = 1  # residual layers of a head
    own_projections: bool = True  # False: the target's head stands in for them, and the heads are small
    decay: float = 0.8  # weight of a head against the one before
    noise: float = 0.0  # half the width of the uniform noise that is added to the states in training
    joint: bool = False  # the target learns too, by low-rank changes (Medusa-2); what follows is about them
    rank: int = 8
    alpha: float = 16.0  # a change is alpha / rank times the product of its factors
    warmup_share: float = 0.2  # of all steps, in which the heads learn alone
    target_weight: float = 1.0  # of the target's own loss beside that of the heads
    target_lr_share: float = 0.25  # the changes' rate over that of the heads
    distil: bool = True  # the target's own loss: divergence from the original; False: the text's own tokens

    def __post_init__(self) -> None:
        LoraConfig(rank=self.rank, alpha=self.alpha)
        check_range(self, "warmup_share", least=0.0, most=1.0)
        check_range(self, "target_weight", least=0.0)
        check_range(self, "target_lr_share", least=0.0, most=1.0)
        check_range(self, "num_heads", least=1, most=64)
        check_range(self, "num_layers", least=1, most=16)
        check_range(self, "decay", least=0.0, most=1.0)
        check_range(self, "noise", least=0.0)


def learner(net: MedusaNet, target: Decoder, options: MedusaLearning, lora: Lora | None) -> Learner:
    """The heads under their frozen target, or with one that learns by `lora`."""

    def states(last: Tensor, lesson: Lesson) -> Callable[[int, Tensor], Tensor]:
        return lambda head, source: net.states(last[source], head)

    heads = HeadLearner(
        net, target, states, lambda place: save_medusa(net, place, target.dtype), decay=options.decay,
        noise=options.noise,
    )  # fmt: skip
    if lora is None:
        return heads
    joint = Joint(
        warmup_share=options.warmup_share, target_weight=options.target_weight,
        target_lr_share=options.target_lr_share, distil=options.distil,
    )  # fmt: skip
    return JointLearner(heads, target, lora, joint)


def new(options: MedusaLearning, target: Decoder, seed: int) -> Learner:
    """Fresh heads: residual layers of zeros, projections as the target's head."""
    known = target.config
    config = MedusaConfig(
        tap=known.num_layers, hidden_size=known.hidden_size, vocab_size=known.vocab_size, num_heads=options.num_heads,
        num_layers=options.num_layers, own_projections=options.own_projections,
    )  # fmt: skip
    net = MedusaNet(config, torch.float32, target.device)
    begin_as(net, target)
    return learner(net, target, options, _fresh(options, target, seed) if options.joint else None)


def load(options: MedusaLearning, target: Decoder, directory: Path) -> Learner:
    """Heads that were trained before; with `joint`, the target's changes beside them, or fresh ones.

    Raises `CapabilityError` for those of another target.
    """
    net, lora = formats.load(directory, target, torch.float32), None
    if options.joint:
        lora = load_lora(directory, target) if has_lora(directory) else _fresh(options, target, 0)
        lora.train().requires_grad_(True)
    return learner(net.train().requires_grad_(True), target, options, lora)


def _fresh(options: MedusaLearning, target: Decoder, seed: int) -> Lora:
    return new_lora(target, LoraConfig(rank=options.rank, alpha=options.alpha), seed)


def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """The heads of `target` inflated by `width` and `depth`, which guess the same."""
    net = load_medusa(head_dir, target.dtype)
    big = MedusaNet(inflated(net.config, target, width, depth), target.dtype)
    widen_into(big, net, hidden_size=net.config.hidden_size, width=width)
    save_medusa(big, out_dir)


LEARN = LearnMethod(
    summary="heads on the target's last state, one for each of the next tokens", options=MedusaLearning, new=new,
    load=load, drafts={"width": 1, "sample": "match"}, model_type=MODEL_TYPE, formats=formats.FORMATS,
    inflate=inflate,
)  # fmt: skip
