"""Train an exit head on a frozen target: the state after E layers, as the final norm and head should see it."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.drafters.early_exit.net import MODEL_TYPE, EarlyExitConfig, EarlyExitHead, load_exit_head, save_exit_head
from outdraft.drafters.shared.learning.inflate import layers_after, widen
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the head in `head_dir` for `target`, inflated by `width` and `depth`."""
    head = load_exit_head(head_dir, target.dtype)
    config = replace(
        head.config,
        exit_layer=layers_after(head.config.exit_layer, target.config.num_layers, depth),
        hidden_size=head.config.hidden_size * width,
        inner_size=head.config.inner_size * width,
    )
    big = EarlyExitHead(config, head.up.dtype)
    for name, parameter in big.named_parameters():
        parameter.copy_(widen(head.get_parameter(name), width))
    save_exit_head(big, out_dir)


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyExitLearning:
    """Where it exits and how wide the head is."""

    exit_layer: int = 0  # it reads the state after so many layers; 0: nearly half of the target's
    inner_size: int = 0  # of the head's two matrices; 0: the target's width

    def __post_init__(self) -> None:
        check_range(self, "exit_layer", "inner_size", least=0)


class EarlyExitLearner:
    """An exit head under a frozen target."""

    def __init__(self, head: EarlyExitHead, target: Decoder) -> None:
        self.module, self._target = head, target
        self.taps = (head.config.exit_layer,)

    def look(self, lesson: Lesson) -> Outlook:
        """The first layers read their own guesses as they would the text, so one depth stands for all."""
        rows = torch.arange(len(lesson.states), device=lesson.states.device)
        states = self.module(lesson.taps[self.taps[0]])
        return Outlook(guesses=[Guess(states=states, head=self._target.logits, rows=rows)], recurs=True)

    def save(self, directory: Path) -> None:
        save_exit_head(self.module, directory, self._target.dtype)


def new(options: EarlyExitLearning, target: Decoder, seed: int) -> EarlyExitLearner:
    """A fresh head; its output starts as its input."""
    layers, width = target.config.num_layers, target.config.hidden_size
    layer = options.exit_layer or max(1, layers * 4 // 9)
    if layer >= layers:
        raise ConfigError(f"exit_layer={layer} leaves nothing to verify with: the target has {layers} layers")
    config = EarlyExitConfig(
        exit_layer=layer, hidden_size=width, inner_size=options.inner_size or width, norm_eps=target.config.norm_eps
    )
    head = EarlyExitHead(config, torch.float32, target.device)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.norm.weight.fill_(1)
        head.up.weight.copy_(torch.randn(head.up.weight.shape, generator=generator) * width**-0.5)
        head.down.weight.zero_()
    return EarlyExitLearner(head, target)


def load(options: EarlyExitLearning, target: Decoder, directory: Path) -> EarlyExitLearner:
    """A head that was trained before. Raises `ConfigError` for one of another target."""
    head, known = load_exit_head(directory, torch.float32).to(target.device), target.config
    if head.config.hidden_size != known.hidden_size or not 0 < head.config.exit_layer < known.num_layers:
        raise ConfigError(
            f"{directory} holds a head of width {head.config.hidden_size} after {head.config.exit_layer} layers; the "
            f"target has width {known.hidden_size} and {known.num_layers} layers: name its own"
        )
    return EarlyExitLearner(head.train().requires_grad_(True), target)


LEARN = LearnMethod(
    summary="an exit head for the target's first layers",
    options=EarlyExitLearning,
    new=new,
    load=load,
    model_type=MODEL_TYPE,
    inflate=inflate,
)
