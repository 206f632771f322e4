"""Train heads together with their target, which gets low-rank changes and is kept near its original distribution.

    warm-up      the heads alone, on the target as it is: they begin as noise, whose gradients would harm it
    then         both: the heads' loss, and the target's own (its divergence from the original, or the text's tokens)

Cai et al., "Medusa", 2024, https://arxiv.org/abs/2401.10774 (Medusa-2: a joint loss, a higher rate for the heads than
for the target, heads first, and self-distillation). What verifies is the changed target, so the heads are compared with
its distribution, and every promise is about it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from outdraft.core.learner import OWN, TARGET, Beside, Lesson, Outlook
from outdraft.drafters.shared.heads.learn import HeadLearner
from outdraft.models.files.load import read_json
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort
from outdraft.models.remake.lora import Lora
from outdraft.models.remake.taught import TaughtTarget
from outdraft.options.errors import CapabilityError
from outdraft.weights.digest import digest_weights

TAUGHT = "taught_target.json"  # beside heads that were trained with their target: which weights it has since


@dataclass(frozen=True, slots=True, kw_only=True)
class JointLearning:
    """How a target learns along."""

    warmup_share: float  # of all steps, in which only the heads learn
    target_weight: float  # of the target's own loss beside that of the heads
    target_lr_share: float  # of the heads' rate
    distil: bool  # its own loss is the divergence from the original target; False: the text's own tokens


def require_taught(directory: Path, port: TargetPort) -> None:
    """Raise `CapabilityError` for heads whose target learned with them, under another one: they would accept little.

    Which target it is, the files of its directory say.
    """
    path, source = directory / TAUGHT, port.origin.source
    if source is None or not path.is_file():
        return
    wanted = read_json(path).get("weights")
    if (known := digest_weights(source)) != wanted:
        raise CapabilityError(
            f"the heads in {directory} were trained together with their target ({wanted}), and {source} ({known}) is "
            f"another: take {directory / TARGET}, or the place where you keep it; if {source} holds those weights in "
            f"another format, delete {path}"
        )


class JointLearner:
    """Heads over a changed copy of `target`, which stays as it is itself."""

    modifies_target = True

    def __init__(self, heads: HeadLearner, target: Decoder, lora: Lora, joint: JointLearning) -> None:
        self._heads, self._taught, self._joint = heads, TaughtTarget(target, lora), joint
        self.module: nn.Module = nn.ModuleDict({"heads": heads.module, "lora": lora})
        self.taps = heads.taps

    @property
    def rates(self) -> Mapping[nn.Parameter, float]:
        """The share of the rate that each of the target's changes learns at."""
        return dict.fromkeys(self._taught.lora.parameters(), self._joint.target_lr_share)

    def look(self, lesson: Lesson) -> Outlook:
        """What the heads guess behind the changed target's states; and its own loss, where something is learned."""
        moment = lesson.moment
        warm = moment is not None and moment.step < self._joint.warmup_share * moment.steps
        with torch.set_grad_enabled(torch.is_grad_enabled() and not warm):
            states = self._taught.run(lesson).hidden
        outlook = self._heads.look(replace(lesson, states=states))
        beside = (self._own_loss(states, lesson),) if states.requires_grad else ()
        return replace(outlook, states=states.detach(), beside=(*outlook.beside, *beside))

    def choose_vocab(self, counts: Tensor) -> None:
        """Guess the tokens that the texts ask for most often, if not all: counts [V]."""
        self._heads.choose_vocab(counts)

    def save(self, directory: Path) -> None:
        """What the drafter loads, the changed target in a folder of its own, and the changes alone."""
        self._heads.save(directory)
        self._taught.save(directory)
        told = {"weights": digest_weights(directory / TARGET)}
        (directory / TAUGHT).write_text(json.dumps(told) + "\n", encoding="utf-8")

    def _own_loss(self, states: Tensor, lesson: Lesson) -> Beside:
        """Of counted rows, times its weight."""
        kept, tokens = lesson.counts.nonzero()[:, 0], lesson.ids[:, 1:].flatten()
        said = None if self._joint.distil else tokens[kept]
        far = self._taught.losses(states[kept], lesson.states[kept], said)
        return Beside(name=OWN, values=self._joint.target_weight * far, rows=kept)
