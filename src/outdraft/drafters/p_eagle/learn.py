"""Train a P-EAGLE network on a frozen target: chains of mask rows behind its texts, the fewer the deeper.

    pairs     0 1 2 3 4 5 6 7         all of the text, in one pass, whose keys and values are kept
    depth 1     2 3   5   7           mask rows behind pairs, a share of all at random
    depth 2       4   6               behind those that are left: row d behind pair i stands at i + d
    sees      pairs up to i, and the rows of its own chain; it guesses token i + d + 2

"P-EAGLE", 2026, https://arxiv.org/abs/2602.01469: conditional drop of tokens, which is PARD's (An et al.,
2025, https://arxiv.org/abs/2504.18583). Of n supervised rows (n - d) times max(0.7^d, 0.2) remain at depth d, of those
that depth d - 1 kept and whose next token is supervised. All rows of all depths count alike. An exam drops none.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from outdraft.core.learner import Guess, LearnMethod, Lesson, Outlook
from outdraft.drafters.p_eagle.formats import FORMATS, KIND, save_p_eagle
from outdraft.drafters.shared.blocks.behind import BehindContext, KeptContext
from outdraft.drafters.shared.blocks.sees import PackedBlocks
from outdraft.drafters.shared.blocks.spots import chosen_rows, documents_of, rows_inside
from outdraft.drafters.shared.features.fused.learn import FusedLearning, inflate_fused, new_fused, trained_before
from outdraft.drafters.shared.features.fused.net import FusedNet
from outdraft.drafters.shared.learning.vocab import choose_vocab
from outdraft.models.networks.base import Decoder
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class PEagleLearning(FusedLearning):
    """The network's shape, how many tokens it guesses at once, and which rows it learns from."""

    num_layers: int = 4
    num_depths: int = 8  # tokens that one pass guesses
    mask_token_id: int = 0
    train_embedding: bool = True  # embeddings of its own, which begin as the target's; False: the target's
    anchors: int = 512  # chains of mask rows in a row of texts at most
    share: float = 0.7  # of the rows of a depth that the next one keeps
    least: float = 0.2  # of all rows, that every depth keeps

    def __post_init__(self) -> None:
        FusedLearning.__post_init__(self)
        check_range(self, "num_depths", least=1, most=64)
        check_range(self, "mask_token_id", least=0)
        check_range(self, "anchors", least=1, most=1 << 20)
        check_range(self, "share", "least", least=0.0, most=1.0)


class PEagleLearner:
    """A network under a frozen target."""

    def __init__(self, net: FusedNet, target: Decoder, options: PEagleLearning) -> None:
        self.module: nn.Module = net
        self.taps = net.taps
        self.net, self.target, self._options = net, target, options

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each depth."""
        net, (batch, length) = self.net, lesson.shape
        documents = lesson.documents[:, :length]
        context = KeptContext(batch, length, documents)
        behind = pad(lesson.positions.view(batch, length)[:, 1:], (0, 1)).flatten()  # of each pair's token
        embeds = self._embed(lesson.ids[:, 1:].flatten(), behind)
        g = net.run(embeds, net.fuse([lesson.taps[tap] for tap in self.taps]), lesson.positions, context)
        follows = pad(documents[:, 1:] == documents[:, :-1], (1, 0)).flatten()  # a pair stands before the row
        rows = follows.nonzero()[:, 0]
        guesses = [self._guess(g[rows - 1], rows)]
        starts = chosen_rows(lesson, self._options.anchors)  # of pending tokens
        starts = starts[follows[starts]]
        chains = self._chains(lesson, starts, context.kept)
        for depth in range(1, net.config.num_depths):
            own = [(one, h) for one, h in chains if h.shape[1] >= depth]
            states = torch.cat([g[:0], *(h[:, depth - 1] for _, h in own)])
            guesses.append(self._guess(states, torch.cat([starts[:0], *(starts[one] + depth for one, _ in own)])))
        return Outlook(guesses=guesses)

    def _guess(self, states: Tensor, rows: Tensor) -> Guess:
        return Guess(states=states, head=self.net.logits, rows=rows, vocab=self.net.vocab)

    def _embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        own = self.net.embed
        return self.target.embed(ids, positions).detach() if own is None else own(ids, positions)

    def _chains(self, lesson: Lesson, starts: Tensor, keys: list[tuple[Tensor, Tensor]]) -> list[tuple[Tensor, Tensor]]:
        """Of each length L, which starts have chains of it [m], and the states of their mask rows [m, L, D]."""
        net, lengths = self.net, self._lengths(lesson, starts)
        sizes = [size for size in range(1, net.config.num_depths) if bool((lengths == size).any())]
        if not sizes:
            return []
        own = [(lengths == size).nonzero()[:, 0] for size in sizes]
        groups, places = [], []
        for size, one in zip(sizes, own, strict=True):
            seen = documents_of(lesson, starts[one] - 1, behind=1)
            groups.append(PackedBlocks(keys, seen, size, lambda layer: (None, True)))
            places.append((lesson.positions[starts[one], None] + torch.arange(size, device=starts.device)).flatten())
        counts, positions = [len(one) for one in places], torch.cat(places)
        embeds = self._embed(torch.full_like(positions, net.config.mask_token_id or 0), positions + 1)
        f = net.fuse(net.mask_taps).expand(len(positions), -1)
        h = net.run(embeds, f, positions, BehindContext(groups, counts))
        parts = h.split(counts)  # type: ignore[no-untyped-call]
        return [(one, part.view(len(one), size, -1)) for size, one, part in zip(sizes, own, parts, strict=True)]

    def _lengths(self, lesson: Lesson, starts: Tensor) -> Tensor:
        """How many mask rows there are behind each start [n]."""
        rows, allowed = rows_inside(lesson, starts, starts, self.net.config.num_depths)  # [n, K]
        if lesson.moment is None:
            return allowed.sum(1) - 1
        allowed &= lesson.counts[rows]
        lengths, share = torch.zeros_like(starts), self._options.share
        for row in range(lesson.shape[0]):
            left = (starts // lesson.shape[1] == row).nonzero()[:, 0]
            total, generator = len(left), lesson.moment.generator(row, 1)
            for depth in range(1, self.net.config.num_depths):
                left = left[allowed[left, depth]]
                most = max(0, int((total - depth) * max(share**depth, self._options.least)))
                if len(left) > most:
                    left = left[torch.randperm(len(left), generator=generator)[:most].to(left.device)]
                lengths[left] = depth
        return lengths

    def save(self, directory: Path) -> None:
        save_p_eagle(self.net, directory, self.target.dtype)


def new(options: PEagleLearning, target: Decoder, seed: int) -> PEagleLearner:
    """A network that nothing has taught yet."""
    token, own = options.mask_token_id, options.train_embedding
    if token >= target.config.vocab_size:
        raise ConfigError(f"mask_token_id={token}: the target has {target.config.vocab_size} tokens")
    config = options.config(
        target, own_embedding=own, train_embedding=own, mask_token_id=token, num_depths=options.num_depths
    )
    return PEagleLearner(new_fused(config, target, seed), target, options)


LEARN = LearnMethod(
    summary="EAGLE-3's layers that guess several tokens in one pass, by mask rows behind the text",
    options=PEagleLearning,
    new=new,
    load=lambda options, target, place: PEagleLearner(trained_before(KIND, place, target), target, options),
    drafts={"width": 1, "sample": "match"},
    choose_vocab=lambda learner, counts: choose_vocab(learner.net, learner.target, counts),
    model_type=KIND.model_type,
    formats=FORMATS,
    inflate=partial(inflate_fused, KIND),
)
