"""LayerSkip's training: later layers are dropped more often, and every layer learns to speak through the target's head.

Elhoushi et al., "LayerSkip: enabling early exit inference and self-speculative decoding", 2024,
https://arxiv.org/abs/2404.16710.

    dropout of layer l      p(l) = dropout * (2^(l / (L - 1)) - 1)    of each row of texts by itself
    weight of exit l        e(l) = scale * (0 + ... + l)              of the last: L - 1 + scale * (0 + ... + L - 2)
    exits of step t         those with l = t mod R (rotational), or one more from the last down every T / 2L steps
    loss                    the mean over the step's exits, each as heavy as e(l)

Each loss is the divergence from what the original target says, or (`distil=False`, the paper's) the text's own tokens.
The paper trains all weights, from scratch or on; here low-rank changes learn, and norms, embedding and head stay.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from outdraft.core.learner import OWN, Beside, Guess, LearnMethod, Lesson, Moment, Outlook
from outdraft.finetune.shared import LowRankOptions, go_on, teach
from outdraft.models.files.load import read_json
from outdraft.models.networks.base import Decoder
from outdraft.models.remake.taught import TaughtTarget
from outdraft.nn.packed import PackedContext
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range

CURRICULA = ("rotational", "gradual")
_DROPS = 7  # a purpose of a step's random numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSkipLearning(LowRankOptions):
    """The paper's settings. Raises `ConfigError` naming what is out of range."""

    exit_layer: int = 0  # drafts will come from so many layers, and are judged there; 0: a quarter, at least 2
    dropout: float = 0.1  # of the last layer (p_max); the paper's: 0.1 to 0.2
    dropout_ramps: bool = False  # from nothing at the first step to all of it at the last: for training from scratch
    exit_scale: float = 0.2  # of the losses at exits (e_scale); the paper's: 0.1 to 1
    # which exits a step has; a rotation comes round every `rotation` steps, and "gradual" adds one after the other
    curriculum: Literal["rotational", "gradual"] = "rotational"
    rotation: int = 0  # R; 0: a quarter of the layers, at least 2
    distil: bool = True  # labels: the original target's distribution; False: the text's own tokens

    def __post_init__(self) -> None:
        LowRankOptions.__post_init__(self)
        check_range(self, "exit_layer", "rotation", least=0)
        check_range(self, "dropout", least=0.0, most=1.0)
        check_range(self, "exit_scale", least=0.0)
        if self.curriculum not in CURRICULA:
            raise ConfigError(f"curriculum={self.curriculum!r} is not known: take {' or '.join(CURRICULA)}")


def dropout_rate(layer: int, layers: int, options: LayerSkipLearning, moment: Moment) -> float:
    """The share of rows of texts in which layer `layer` of `layers` is left out at this step."""
    share = 2 ** (layer / max(1, layers - 1)) - 1
    time = 2 ** (moment.step / max(1, moment.steps - 1)) - 1 if options.dropout_ramps else 1.0
    return options.dropout * share * time


def exit_weights(layers: int, options: LayerSkipLearning, moment: Moment) -> dict[int, float]:
    """The loss's weight of the exits of this step, by how many layers have run; they sum up to 1."""
    last, rotation = layers - 1, options.rotation or max(2, layers // 4)
    if options.curriculum == "gradual":
        first = last - moment.step // max(1, moment.steps // (2 * layers))
        chosen = [layer for layer in range(last) if layer >= first]
    else:
        chosen = [layer for layer in range(last) if layer % rotation == moment.step % rotation]
    heavy = {layer: options.exit_scale * math.comb(layer + 1, 2) for layer in chosen}
    heavy[last] = last + options.exit_scale * math.comb(last, 2)
    total = sum(heavy.values()) or 1.0
    return {layer + 1: weight / total for layer, weight in heavy.items()}


class LayerSkipLearner:
    """A changed copy of a target, whose first layers draft."""

    modifies_target = True
    taps: tuple[int, ...] = ()
    rates: Mapping[nn.Parameter, float] = {}

    def __init__(self, taught: TaughtTarget, options: LayerSkipLearning) -> None:
        layers = taught.original.config.num_layers
        self.exit_layer = options.exit_layer or max(2, layers // 4)
        if self.exit_layer == 1:
            raise ConfigError("exit_layer=1 has no weight in LayerSkip's loss, where exit l weighs 0 + ... + l: take 2")
        if self.exit_layer >= layers:
            raise ConfigError(
                f"exit_layer={self.exit_layer} leaves nothing to verify with: the target has {layers} layers"
            )
        self.module: nn.Module = taught.lora
        self._taught, self._options = taught, options

    def look(self, lesson: Lesson) -> Outlook:
        """What the exit guesses; in training, the losses of all exits of the step."""
        moment, layers = lesson.moment, self._taught.original.config.num_layers
        if moment is None or not torch.is_grad_enabled():
            found = self._taught.run(lesson, taps=(self.exit_layer,))
            return self._outlook(lesson, found.taps[self.exit_layer], found.hidden)
        at = self._dropping(lesson, moment)
        kept, tokens = lesson.counts.nonzero()[:, 0], lesson.ids[:, 1:].flatten()
        said, original = None if self._options.distil else tokens[kept], lesson.states[kept]
        losses = [
            Beside(name=OWN, values=self._taught.losses(at[layer][kept], original, said), rows=kept, weight=weight)
            for layer, weight in exit_weights(layers, self._options, moment).items()
        ]
        return self._outlook(lesson, at[self.exit_layer].detach(), at[layers].detach(), losses)

    def save(self, directory: Path) -> None:
        """The changes, the changed target, and where its drafts come from."""
        self._taught.save(directory)
        about = {"model_type": MODEL_TYPE, "exit_layer": self.exit_layer}
        (directory / "config.json").write_text(json.dumps(about) + "\n", encoding="utf-8")

    def _outlook(
        self, lesson: Lesson, exit_states: Tensor, states: Tensor, losses: list[Beside] | None = None
    ) -> Outlook:
        rows = torch.arange(len(states), device=states.device)
        guess = Guess(states=exit_states, head=self._taught.original.logits, rows=rows)
        return Outlook(guesses=[guess], recurs=True, states=states, beside=losses or ())

    def _dropping(self, lesson: Lesson, moment: Moment) -> dict[int, Tensor]:
        """The states after each layer [B * T, D], by how many have run or were left out."""
        network, (batch, length) = self._taught.network, lesson.shape
        layers, context = network.config.num_layers, PackedContext(batch, length, lesson.documents[:, :-1])
        dice = torch.stack([torch.rand(layers, generator=moment.generator(b, _DROPS)) for b in range(batch)])
        h = network.embed(lesson.ids[:, :-1].flatten(), lesson.positions)
        found = {}
        for layer in range(layers):
            runs = (dice[:, layer] >= dropout_rate(layer, layers, self._options, moment)).to(h.device)  # [B]
            if bool(runs.any()):
                after = network.run(h, lesson.positions, context, start=layer, stop=layer + 1).hidden
                h = torch.where(runs.repeat_interleave(length)[:, None], after, h.to(after.dtype))
            found[layer + 1] = h
        return found


def _load(options: LayerSkipLearning, target: Decoder, directory: Path) -> LayerSkipLearner:
    """Where the options name no exit, drafts come from where they came before."""
    taught, about = go_on(target, directory), directory / "config.json"
    known: Mapping[str, Any] = read_json(about) if about.exists() else {}  # changes of another kind have no exit
    return LayerSkipLearner(taught, replace(options, exit_layer=options.exit_layer or known.get("exit_layer", 0)))


MODEL_TYPE = "outdraft_layerskip"
LEARN: LearnMethod[LayerSkipLearning, Decoder] = LearnMethod(
    summary="the target, whose first layers learn to draft and whose later ones may be left out (modifies_target)",
    options=LayerSkipLearning,
    new=lambda options, target, seed: LayerSkipLearner(teach(options, target, seed), options),
    load=_load,
    drafter="early_exit",
    drafter_options=lambda directory: {"exit_layer": read_json(directory / "config.json")["exit_layer"]},
    loss={},
    model_type=MODEL_TYPE,
)
