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
from outdraft.drafters.shared.heads.projections import Projections
from outdraft.drafters.shared.heads.stem import Stem, StemConfig
from outdraft.drafters.shared.learning.inflate import widen
from outdraft.drafters.shared.learning.noise import with_noise
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import Block
from outdraft.nn.linear import Linear
from outdraft.nn.packed import PackedContext

Sizes = TypeVar("Sizes", bound=HeadConfig)


class HeadNet(Protocol):
    """What the networks have in common; each is a module."""

    projections: Projections

    @property
    def config(self) -> HeadConfig:
        """Its sizes, and perhaps more."""
        ...

    def logits(self, states: Tensor, head: int) -> Tensor:
        """What projection `head` makes of [N, D]: [N, V]."""
        ...


# last states [B * T, D] behind the norm, lesson -> (head, source rows [N]) -> what the head's projection reads [N, D]
Reader = Callable[[Tensor, Lesson], Callable[[int, Tensor], Tensor]]


class HeadLearner:
    """Heads under a frozen target. `states`: what they read, which may hold what all heads of a lesson share.

    `noise`: half the width of the uniform noise on the last states in training.
    """

    def __init__(
        self,
        net: HeadNet,
        target: Decoder,
        states: Reader,
        save: Callable[[Path], None],
        *,
        decay: float,
        noise: float = 0.0,
    ) -> None:
        assert isinstance(net, nn.Module)
        net.projections.borrow(target)
        self._noise = noise
        self.module: nn.Module = net
        self.taps = (net.config.tap,)
        self._net, self._target, self._states, self._save, self._decay = net, target, states, save, decay

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each head, in the rows whose document goes on so far."""
        batch, length = lesson.shape
        documents = lesson.documents[:, :-1]
        row = torch.arange(batch * length, device=documents.device).view(batch, length)
        states_of = self._states(last_states(self._target, lesson, self._net.config, self._noise), lesson)
        guesses = []
        for head in range(self._net.config.num_heads):
            ahead = head + 1
            same = documents[:, ahead:] == documents[:, :-ahead]
            source, rows = row[:, :-ahead][same], row[:, ahead:][same]

            def says(states: Tensor, head: int = head) -> Tensor:
                return self._net.logits(states, head)

            guesses.append(Guess(states=states_of(head, source), head=says, rows=rows, weight=self._decay**head))
        return Outlook(guesses=guesses)

    def save(self, directory: Path) -> None:
        self._save(directory)


def last_states(target: Decoder, lesson: Lesson, config: HeadConfig, noise: float = 0.0) -> Tensor:
    """What heads read of all rows: the target's last states behind its norm, and noise in training: [B * T, D]."""
    normed = target.norm(lesson.states)
    if not lesson.states.requires_grad:  # a target that is not taught along
        normed = normed.detach()
    return with_noise(normed * config.scale, lesson, noise)


@torch.no_grad()
def begin_as(net: HeadNet, target: Decoder) -> None:
    """Untrained, every head says what the target said before: its head, and nothing else yet."""
    assert isinstance(net, nn.Module)
    for parameter in net.parameters():
        parameter.zero_()
    for projection in net.projections:
        assert isinstance(projection, Linear)
        projection.weight.copy_(target.head_matrix())


def inflated(config: Sizes, target: Decoder, width: int, depth: int) -> Sizes:
    """The sizes of heads for `target` inflated by `width` and `depth`, whose final norm divides if its head is tied."""
    scale = config.scale * (width if target.config.tie_embeddings else 1)
    wide = replace(config, tap=depth, hidden_size=config.hidden_size * width, scale=scale)
    if not isinstance(wide, StemConfig):
        return wide
    return replace(
        wide, stem_heads=wide.stem_heads * width, stem_kv_heads=wide.stem_kv_heads * width,
        stem_inner=wide.stem_inner * width,
    )  # fmt: skip


@torch.no_grad()
def widen_into(big: nn.Module, small: nn.Module, *, hidden_size: int, width: int) -> None:
    """The parameters of heads whose target has `width` times the channels: the same guesses."""
    blocks = {name: module for name, module in small.named_modules() if isinstance(module, Block)}
    for name, parameter in big.named_parameters():
        own = small.get_parameter(name)
        block = next((found for prefix, found in blocks.items() if name.startswith(f"{prefix}.")), None)
        if name.startswith("projections"):
            parameter.copy_(own.repeat(1, width) / width if own.dim() == 2 else own)
        elif block is not None:
            parameter.copy_(widen(own, width, 1, _heights(block, name.split(".")[-2])))
        elif name.endswith("places"):  # states of their own, not maps
            parameter.copy_(own.repeat(1, width))
        else:
            parameter.copy_(widen(own, width, own.shape[1] // hidden_size if own.dim() == 2 else 1))


def _heights(block: Block, kind: str) -> list[int] | None:
    """Heights of the parts that a fused matrix of a block writes; None: it is not fused."""
    heads, inner = (block.num_heads, block.num_kv_heads, block.num_kv_heads), block.up.shape[0] // 2
    return {"qkv": [count * block.head_dim for count in heads], "up": [inner, inner]}.get(kind)


def stem_outputs(stem: Stem, states: Tensor, lesson: Lesson, target: Decoder) -> Tensor:
    """The stem over all rows of a lesson: the states that it reads [B * T, D] -> [B * T, D].

    A row's own token is the one behind it, which may be of another document at a document's end; no guess is made from
    there.
    """
    batch, length = lesson.shape
    embeds = None
    if stem.reads_tokens:
        embeds = target.embed(lesson.ids[:, 1:].flatten(), lesson.positions + 1).detach()
    context = PackedContext(batch, length, lesson.documents[:, :-1])
    return stem(states, embeds, lesson.positions, context)  # type: ignore[no-any-return]
