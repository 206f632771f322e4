"""Training heads on the last state: which row each reads and guesses, how they begin, how they grow with their target.

head i    reads the state of row r and perhaps the text's tokens r + 1 .. r + i + 1
          guesses what the target's row r + i + 1 distributes
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from outdraft.core.learner import Guess, Lesson, Outlook
from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.learning.inflate import widen
from outdraft.models.base import Decoder
from outdraft.nn.linear import Linear

Sizes = TypeVar("Sizes", bound=HeadConfig)


class HeadNet(Protocol):
    """What the networks have in common; each is a module."""

    projections: nn.ModuleList

    @property
    def config(self) -> HeadConfig:
        """Its sizes, and perhaps more."""
        ...

    def logits(self, states: Tensor, head: int) -> Tensor:
        """What projection `head` makes of [N, D]: [N, V]."""
        ...


class HeadLearner:
    """Heads under a frozen target.

    `states`: normed last states [N, D], lesson, head, source rows [N] -> what its projection reads [N, D].
    """

    def __init__(
        self,
        net: HeadNet,
        target: Decoder,
        states: Callable[[Tensor, Lesson, int, Tensor], Tensor],
        save: Callable[[Path], None],
        *,
        decay: float,
    ) -> None:
        assert isinstance(net, nn.Module)
        self.module: nn.Module = net
        self.taps = (net.config.tap,)
        self._net, self._target, self._states, self._save, self._decay = net, target, states, save, decay

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each head, in the rows whose document goes on so far."""
        batch, length = lesson.shape
        documents = lesson.documents[:, :-1]
        row = torch.arange(batch * length, device=documents.device).view(batch, length)
        normed = self._target.norm(lesson.states).detach() * self._net.config.scale
        guesses = []
        for head in range(self._net.config.num_heads):
            ahead = head + 1
            same = documents[:, ahead:] == documents[:, :-ahead]
            source, rows = row[:, :-ahead][same], row[:, ahead:][same]

            def says(states: Tensor, head: int = head) -> Tensor:
                return self._net.logits(states, head)

            states = self._states(normed[source], lesson, head, source)
            guesses.append(Guess(states=states, head=says, rows=rows, weight=self._decay**head))
        return Outlook(guesses=guesses)

    def save(self, directory: Path) -> None:
        self._save(directory)


@torch.no_grad()
def begin_as(net: HeadNet, target: Decoder) -> None:
    """Untrained, every head says what the target said before: its head, and nothing else yet."""
    assert isinstance(net, nn.Module)
    for parameter in net.parameters():
        parameter.zero_()
    for projection in net.projections:
        assert isinstance(projection, Linear)
        projection.weight.copy_(target.lm_head.matrix())


def inflated(config: Sizes, target: Decoder, width: int, depth: int) -> Sizes:
    """The sizes of heads for `target` inflated by `width` and `depth`, whose final norm divides if its head is tied."""
    scale = config.scale * (width if target.config.tie_embeddings else 1)
    return replace(config, tap=depth, hidden_size=config.hidden_size * width, scale=scale)


@torch.no_grad()
def widen_into(big: nn.Module, small: nn.Module, *, hidden_size: int, width: int) -> None:
    """The parameters of heads whose target has `width` times the channels: the same guesses."""
    for name, parameter in big.named_parameters():
        own = small.get_parameter(name)
        if name.startswith("projections"):
            parameter.copy_(own.repeat(1, width) / width)
        else:
            parameter.copy_(widen(own, width, own.shape[1] // hidden_size if own.dim() == 2 else 1))
