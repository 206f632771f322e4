"""Train Medusa's heads: head i learns what the target says i + 1 tokens further on. The target is frozen (Medusa-1), or
learns with them (`joint`: Medusa-2).

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774: a head weighs 0.8 of the one before. The paper's loss is
the cross-entropy of the text's own tokens (`--loss cross_entropy=1`); ours by default the target's whole distribution.
"""

from dataclasses import dataclass
from pathlib import Path

from outdraft.core.learner import Learner
from outdraft.drafters.medusa.formats import FORMATS
from outdraft.drafters.medusa.net import MedusaNet
from outdraft.drafters.shared.heads.joint import JointLearner, JointLearning
from outdraft.drafters.shared.heads.learn import HeadLearner, HeadLearning, learn_heads
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.lora import has_lora, load_lora, new_lora
from outdraft.models.remake.lora_config import LoraConfig
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaLearning(HeadLearning):
    """How many heads of which size."""

    num_heads: int = 4  # tokens that are guessed; the paper's: 5
    num_layers: int = 1  # residual layers of a head
    own_projections: bool = True  # False: the target's head stands in for them, and the heads are small
    joint: bool = False  # the target learns too, by low-rank changes (Medusa-2); what follows is about them
    rank: int = 8
    alpha: float = 16.0  # a change is alpha / rank times the product of its factors
    warmup_share: float = 0.2  # of all steps, in which the heads learn alone
    target_weight: float = 1.0  # of the target's own loss beside that of the heads
    target_lr_share: float = 0.25  # the changes' rate over that of the heads
    distil: bool = True  # the target's own loss: divergence from the original; False: the text's own tokens

    def __post_init__(self) -> None:
        HeadLearning.__post_init__(self)
        LoraConfig(rank=self.rank, alpha=self.alpha)
        check_range(self, "warmup_share", least=0.0, most=1.0)
        check_range(self, "target_weight", least=0.0)
        check_range(self, "target_lr_share", least=0.0, most=1.0)


def _learner(net: MedusaNet, target: Decoder, options: MedusaLearning, seed: int, directory: Path | None) -> Learner:
    """The heads under their frozen target, or with one that learns by low-rank changes, fresh or those beside them."""
    heads = HeadLearner(net, target, options)
    if not options.joint:
        return heads
    if directory is not None and has_lora(directory):
        lora = load_lora(directory, target)
    else:
        lora = new_lora(target, LoraConfig(rank=options.rank, alpha=options.alpha), seed)
    joint = JointLearning(
        warmup_share=options.warmup_share,
        target_weight=options.target_weight,
        target_lr_share=options.target_lr_share,
        distil=options.distil,
    )
    return JointLearner(heads, target, lora.train().requires_grad_(True), joint)


LEARN = learn_heads(
    MedusaNet,
    MedusaLearning,
    lambda options, known: {
        "num_heads": options.num_heads,
        "num_layers": options.num_layers,
        "own_projections": options.own_projections,
    },
    _learner,
    summary="heads on the target's last state, one for each of the next tokens",
    formats=FORMATS,
)
