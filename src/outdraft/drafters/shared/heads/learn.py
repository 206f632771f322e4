"""Training heads on the last state: which row each reads and guesses, how they begin, how they grow with their target.

head i    reads the state of row r and perhaps the text's tokens r + 1 .. r + i + 1
          guesses what the target's row r + i + 1 distributes
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from outdraft.core.learner import Guess, Learner, LearnMethod, Lesson, Outlook
from outdraft.core.method import IsDataclass
from outdraft.drafters.shared.heads.config import HeadConfig
from outdraft.drafters.shared.heads.files import Formats, Net, load_heads, read_any, save_heads
from outdraft.drafters.shared.heads.layers import Stem, shape_of
from outdraft.drafters.shared.heads.net import HeadNet
from outdraft.drafters.shared.learning.inflate import widen, widen_layer
from outdraft.drafters.shared.learning.states import with_noise
from outdraft.drafters.shared.learning.vocab import choose_vocab, first_vocab
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.block import Block
from outdraft.models.networks.config import ModelConfig
from outdraft.nn.linear import Linear
from outdraft.nn.packed import PackedContext
from outdraft.options.ranges import check_range


class CountedOptions(IsDataclass, Protocol):
    """Options of any kind whose heads may guess a part of the vocabulary."""

    @property
    def draft_vocab_size(self) -> int: ...


Options = TypeVar("Options", bound=CountedOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLearning:
    """What the learning of all heads has in common. Raises `ConfigError` naming what is out of range.

    A kind that says how many heads, steps or layers there are names these `num_heads`, `num_steps`, `num_layers`.
    """

    decay: float = 0.8  # weight of a head against the one before
    noise: float = 0.0  # half the width of the uniform noise that is added to the states in training
    draft_vocab_size: int = 0  # of the target's tokens the most frequent in the texts; 0: all

    def __post_init__(self) -> None:
        check_range(self, "decay", least=0.0, most=1.0)
        check_range(self, "draft_vocab_size", least=0)
        check_range(self, "noise", least=0.0)
        for name, most in (("num_heads", 64), ("num_steps", 64), ("num_layers", 16)):
            if hasattr(self, name):
                check_range(self, name, least=1, most=most)


class HeadLearner:
    """Heads under a frozen target."""

    def __init__(self, net: HeadNet, target: Decoder, options: HeadLearning) -> None:
        net.borrow(target, torch.float32)
        self.module: nn.Module = net
        self.taps = (int(net.config.tap),)
        self._net, self._target, self._options = net, target, options

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each head, in the rows whose document goes on so far."""
        h = shared_states(self._net, self._target, lesson, self._options.noise)
        states_of = self._net.reader(h, lesson, self._target)
        guesses = []
        for head in range(self._net.config.num_heads):
            source, rows = rows_ahead(lesson, head + 1)
            says, weight = partial(self._net.logits, head=head), self._options.decay**head
            states, vocab = states_of(head, source), self._net.vocab
            guesses.append(Guess(states=states, head=says, rows=rows, weight=weight, vocab=vocab))
        return Outlook(guesses=guesses)

    def choose_vocab(self, counts: Tensor) -> None:
        """Guess the tokens that the texts ask for most often, if not all: counts [V]."""
        choose_projected(self._net, self._target, counts)

    def save(self, directory: Path) -> None:
        save_heads(self._net, directory, self._target.dtype)


def rows_ahead(lesson: Lesson, ahead: int) -> tuple[Tensor, Tensor]:
    """Rows [N] of a lesson whose document goes on for `ahead` rows more, and the rows [N] that these lead to."""
    batch, length = lesson.shape
    documents = lesson.documents[:, :-1]
    row = torch.arange(batch * length, device=documents.device).view(batch, length)
    same = documents[:, ahead:] == documents[:, :-ahead]
    return row[:, :-ahead][same], row[:, ahead:][same]


def last_states(target: Decoder, lesson: Lesson, config: HeadConfig, noise: float = 0.0) -> Tensor:
    """What heads read of all rows: the target's last states behind its norm, and noise in training: [B * T, D]."""
    normed = target.norm(lesson.states)
    if not lesson.states.requires_grad:  # a target that is not taught along
        normed = normed.detach()
    return with_noise(normed * config.scale, lesson, noise)


def shared_states(net: HeadNet, target: Decoder, lesson: Lesson, noise: float = 0.0) -> Tensor:
    """What the heads of each row share: these states, through the stem where there is one, finished: [B * T, W]."""
    h = last_states(target, lesson, net.config, noise)
    return net.finish(h if net.stem is None else stem_outputs(net.stem, h, lesson, target))


@torch.no_grad()
def choose_projected(net: HeadNet, target: Decoder, counts: Tensor) -> None:
    """Guess the most frequent of the target's tokens [V], if not all; projections begin as the target's head anew."""
    if net.vocab is not None:
        choose_vocab(net, target, counts)
        project_as(net, target)


def project_as(net: HeadNet, target: Decoder) -> None:
    """Projections of its own begin as the target's head; CTC's blank, which the target does not have, says nothing."""
    for projection in net.projections:
        assert isinstance(projection, Linear)
        head = target.head_matrix() if net.vocab is None else target.head_rows(net.vocab)
        projection.weight.zero_()[: len(head)].copy_(head)


def learn_heads(
    kind: type[Net],
    options: type[Options],
    sizes: Callable[[Options, ModelConfig], Mapping[str, Any]],
    learner: Callable[[Net, Decoder, Options, int, Path | None], Learner],
    *,
    summary: str,
    formats: Formats = (),
    **more: Any,
) -> LearnMethod[Options, Decoder]:
    """How heads of this kind are trained. `more`: other fields of the method.

    sizes: the fields of its config that options and target decide, besides the target's own sizes.
    learner: what trains the network, from a seed or from what lies in a directory.
    """

    def new(chosen: Options, target: Decoder, seed: int) -> Learner:
        known, size = target.config, chosen.draft_vocab_size
        vocab = first_vocab(size, known.vocab_size, target.device)
        config = kind.sizes(
            tap=known.num_layers,
            hidden_size=known.hidden_size,
            vocab_size=known.vocab_size,
            draft_vocab_size=0 if vocab is None else size,
            **sizes(chosen, known),
        )
        net = kind(config, torch.float32, target.device)
        with torch.no_grad():  # untrained, every head says what the target said before: its head, and nothing else yet
            for parameter in net.parameters():
                parameter.zero_()
            project_as(net, target)
        net.begin(seed)
        return learner(net, target, chosen, seed, None)

    def load(chosen: Options, target: Decoder, directory: Path) -> Learner:
        net = read_any(kind, formats, directory, target, torch.float32)
        return learner(net.train().requires_grad_(True), target, chosen, 0, directory)

    def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
        """The heads of `target` inflated by `width` and `depth`, which guess the same."""
        net, tied = load_heads(kind, head_dir, target.dtype), target.config.tie_embeddings
        scale = net.config.scale * (width if tied else 1)  # the inflated final norm divides if the head is tied
        big = kind(net.config.wider(width, depth, scale), target.dtype, None)
        widen_into(big, net, width=width)
        big.vocab = net.vocab
        save_heads(big, out_dir)

    return LearnMethod(
        summary=summary,
        options=options,
        new=new,
        load=load,
        model_type=f"outdraft_{kind.kind}",
        formats=formats,
        inflate=inflate,
        choose_vocab=lambda learner, counts: learner.choose_vocab(counts),
        **{"drafts": {"width": 1, "sample": "match"}, **more},
    )


@torch.no_grad()
def widen_into(big: HeadNet, small: HeadNet, *, width: int) -> None:
    """The parameters of heads whose target has `width` times the channels: the same guesses."""
    blocks = tuple(f"{name}." for name, module in small.named_modules() if isinstance(module, Block))
    for name, parameter in big.named_parameters():
        own = small.get_parameter(name)
        if name.startswith("projections"):
            parameter.copy_(own.repeat(1, width) / width if own.dim() == 2 else own)
        elif name.startswith(blocks):
            parameter.copy_(widen_layer(name, own, shape_of(small.config), width))
        elif name.endswith("places"):  # states of their own, not maps
            parameter.copy_(own.repeat(1, width))
        else:
            states = small.side_by_side(own) if own.dim() == 2 else 1
            parameter.copy_(widen(own, width, states, small.heights.get(name.split(".")[-2])))


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
