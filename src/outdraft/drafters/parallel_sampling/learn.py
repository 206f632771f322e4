"""Train PaSS's look-ahead embeddings through a frozen target: nothing else learns.

    text           0 1 2 3 4 5 6          once, without a gradient; its keys and values are kept
    look-aheads    2: [L1 L2 L3]          each sees the rows up to its own, and those of its chain before it
    guesses        L1 behind row 2 stands at position 3 and guesses token 4, as the target's row 3 distributes it

Monea, Joulin and Grave, "PaSS", 2023, https://arxiv.org/abs/2311.13581. What is compared is the target's whole
distribution; `--loss cross_entropy=1` takes the text's own tokens.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.drafters.parallel_sampling.net import (
    MODEL_TYPE,
    LookAheadConfig,
    LookAheads,
    load_look_aheads,
    save_look_aheads,
)
from outdraft.drafters.shared.blocks.behind import BehindContext, KeptContext
from outdraft.drafters.shared.blocks.sees import PackedBlocks
from outdraft.drafters.shared.blocks.spots import chosen_rows, documents_of, rows_inside
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelSamplingLearning:
    """How many embeddings, and at how many rows of a row of texts they are learned."""

    num_places: int = 4  # tokens behind the next one that are guessed; the paper's: 4 to 6
    anchors: int = 256
    decay: float = 0.8  # weight of a place against the one before

    def __post_init__(self) -> None:
        check_range(self, "num_places", least=1, most=64)
        check_range(self, "anchors", least=1, most=1 << 20)
        check_range(self, "decay", least=0.0, most=1.0)


class ParallelSamplingLearner:
    """Look-ahead embeddings in a frozen target."""

    taps: tuple[int, ...] = ()

    def __init__(self, net: LookAheads, target: Decoder, options: ParallelSamplingLearning) -> None:
        self.module, self._target, self._options = net, target, options

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each place."""
        net, target = self.module, self._target
        places, device = net.config.num_places, lesson.ids.device
        anchors = chosen_rows(lesson, self._options.anchors)  # [n]
        h = net.places[None].expand(len(anchors), -1, -1).flatten(0, 1)  # [n * L, D]
        if len(anchors):
            positions = (lesson.positions[anchors][:, None] + 1 + torch.arange(places, device=device)).flatten()
            context = BehindContext([self._text(lesson, anchors)], [len(h)])
            h = target.run(h, positions, context).hidden
        h = h.view(len(anchors), places, h.shape[-1])
        rows, inside = rows_inside(lesson, anchors, anchors + 1, places)
        weights = [self._options.decay**place for place in range(places)]
        guesses = [
            Guess(states=h[kept, place], head=target.logits, rows=rows[kept, place], weight=weights[place])
            for place, kept in enumerate(inside.unbind(1))
        ]
        return Outlook(guesses=guesses)

    @torch.no_grad()
    def _text(self, lesson: Lesson, anchors: Tensor) -> PackedBlocks:
        """The keys and values of a pass over the texts, which a look-ahead sees up to its anchor's."""
        target, (batch, length) = self._target, lesson.shape
        context = KeptContext(batch, length, lesson.documents[:, :length])
        target.run(target.embed(lesson.ids[:, :length].flatten(), lesson.positions), lesson.positions, context)
        documents = documents_of(lesson, anchors, behind=1)
        return PackedBlocks(context.kept, documents, self.module.config.num_places, lambda layer: (None, True))

    def save(self, directory: Path) -> None:
        save_look_aheads(self.module, directory, self._target.dtype)


def new(options: ParallelSamplingLearning, target: Decoder, seed: int) -> ParallelSamplingLearner:
    """Embeddings that are the mean of the target's, and a little noise that tells them apart."""
    known = target.config
    config = LookAheadConfig(num_places=options.num_places, hidden_size=known.hidden_size, num_layers=known.num_layers)
    net = LookAheads(config, torch.float32, target.device)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        ids = torch.arange(min(known.vocab_size, 4096), device=target.device)
        some = target.embed(ids, torch.zeros_like(ids)).float()
        noise = torch.randn(net.places.shape, generator=generator).to(some.device)
        net.places.copy_(some.mean(0) + 0.1 * some.std() * noise)
    return ParallelSamplingLearner(net, target, options)


def load(options: ParallelSamplingLearning, target: Decoder, directory: Path) -> ParallelSamplingLearner:
    """Those that were trained before. Raises `ConfigError` for another target's."""
    net, known = load_look_aheads(directory, torch.float32).to(target.device), target.config
    if (net.config.hidden_size, net.config.num_layers) != (known.hidden_size, known.num_layers):
        raise ConfigError(
            f"{directory} holds look-ahead embeddings for {net.config.num_layers} layers of width "
            f"{net.config.hidden_size}; the target has {known.num_layers} of {known.hidden_size}: name its own"
        )
    return ParallelSamplingLearner(net.train().requires_grad_(True), target, options)


@torch.no_grad()
def inflate(head_dir: Path, target: Decoder, out_dir: Path, width: int, depth: int) -> None:
    """Write to `out_dir` the embeddings in `head_dir` for `target`, inflated by `width` and `depth`."""
    small = load_look_aheads(head_dir, target.dtype)
    config = LookAheadConfig(
        num_places=small.config.num_places, hidden_size=small.config.hidden_size * width, num_layers=depth
    )
    big = LookAheads(config, small.places.dtype)
    big.places.copy_(small.places.repeat(1, width))
    save_look_aheads(big, out_dir)


LEARN = LearnMethod(
    summary="look-ahead embeddings that the target reads in its own passes",
    options=ParallelSamplingLearning,
    new=new,
    load=load,
    model_type=MODEL_TYPE,
    inflate=inflate,
)
