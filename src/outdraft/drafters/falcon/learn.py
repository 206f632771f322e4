"""Train Falcon's network on a frozen target: coupled sequential glancing distillation, at random places of its texts.

    block at t    rows t - k .. t - 1      guess f_t -> x_{t+1}, ..., f_{t+k-1} -> x_{t+k}, whatever stands before
    shown         a block's first rows read what they should guess, (f_t, x_{t+1}), in place of what stands there; the
                  rows behind them learn to go on from it

Gao et al., "Falcon", 2024, https://arxiv.org/abs/2412.12639: the share of missed tokens that is shown falls in the
course of a run; the distance of features counts 1, the divergence 0.09, the text's own tokens 0.01. The paper cuts a
text into blocks; here they stand at any place, as when the network drafts. In an
exam a block stands behind it that reads its guesses, and so on.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.learner import Beside, Guess, Lesson, Outlook
from outdraft.drafters.falcon.net import FalconNet
from outdraft.drafters.shared.blocks.sees import PackedBlocks
from outdraft.drafters.shared.blocks.spots import chosen_rows, documents_of, rows_inside
from outdraft.drafters.shared.heads.layers import stem_sizes
from outdraft.drafters.shared.heads.learn import HeadLearner, HeadLearning, last_states, learn_heads
from outdraft.drafters.shared.learning.glancing import best_tokens, chances, share_shown
from outdraft.drafters.shared.learning.states import states_beside
from outdraft.options.ranges import check_range

_NO_STEM = {"num_stem_layers": 0, "own_projections": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class FalconLearning(HeadLearning):
    """How many tokens a pass guesses, where blocks stand in training, and how much is shown to them."""

    block_size: int = 2  # tokens a pass; the paper's: 2 to 4
    anchors: int = 512  # blocks of a row of texts at most
    shown_first: float = 0.45  # of the tokens that are missed, in the first step; 0 in both: nothing is shown
    shown_last: float = 0.1  # in the last one
    decay: float = 1.0  # weight of a position against the one before
    noise: float = 0.1

    def __post_init__(self) -> None:
        HeadLearning.__post_init__(self)
        check_range(self, "block_size", least=2, most=16)
        check_range(self, "anchors", least=1, most=1 << 20)
        check_range(self, "shown_first", "shown_last", least=0.0, most=1.0)


class FalconLearner(HeadLearner):
    """A network under a frozen target."""

    _options: FalconLearning
    _net: FalconNet

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each position behind the pending token, as many as its blocks have."""
        net, target, options, (batch, length) = self._net, self._target, self._options, lesson.shape
        true, f = (last_states(target, lesson, net.config, noise) for noise in (0.0, options.noise))  # [B * T, D]
        tokens, documents, k = lesson.ids[:, 1:].flatten(), lesson.documents[:, :length], net.block
        embeds = target.embed(tokens, lesson.positions + 1).detach()
        begins = torch.ones_like(documents, dtype=torch.bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        x = net.join(embeds, f)
        states = net.along(x.view(batch, length, -1), None, begins).flatten(0, 1)

        anchors, same = chosen_rows(lesson, options.anchors), documents.flatten()  # [n] of pending tokens
        anchors = anchors[(anchors % length >= k) & (same[anchors - k] == same[anchors])]
        first, far, seen = anchors - k, [net.keys(states, lesson.positions)], documents_of(lesson, anchors - k)

        def guessed(rows: Tensor) -> Tensor:  # [n, m, 4, D] -> [n, k, D]
            if not len(rows):
                return rows[:, -k:, 0]
            blocks = PackedBlocks(far, seen, rows.shape[1], lambda layer: (None, False))
            return net.guess(rows, lesson.positions[first], blocks)

        own = first[:, None] + torch.arange(k, device=first.device)  # [n, k]
        rows, (ahead, inside) = states[own], rows_inside(lesson, anchors, anchors, k)
        shown, share = torch.zeros_like(inside), share_shown(lesson, options.shown_first, options.shown_last)
        if share and len(anchors):
            with torch.no_grad():
                best = best_tokens(guessed(rows), net.logits, net.config.draft_vocab_size or net.config.vocab_size)
                best = best if net.vocab is None else net.vocab[best]
            shown = inside & self._shown(lesson, anchors, share, inside & (best != tokens[ahead]))
            before = torch.where(begins.flatten()[first, None, None], 0, states[first - 1])
            rows = net.along(torch.where(shown[..., None], net.join(embeds, true)[ahead], x[own]), before)
        g, kept, guesses, beside = guessed(rows), inside & ~shown, list[Guess](), list[Beside]()
        for block in range(1 if lesson.moment is not None else -(-lesson.depth // k)):
            if block:
                more = net.along(net.join(embeds[ahead], g), rows[:, -1])
                rows, (ahead, inside) = torch.cat((rows, more), 1), rows_inside(lesson, anchors, anchors + block * k, k)
                g, kept = guessed(rows), inside
            for place in range(k):
                rows_of, weight = ahead[kept[:, place], place], options.decay ** len(guesses)
                said = g[kept[:, place], place]
                guesses.append(Guess(states=said, head=net.logits, rows=rows_of, weight=weight, vocab=net.vocab))
                beside.append(states_beside(guesses[-1], true[rows_of]))
        return Outlook(guesses=guesses, beside=beside)

    def _shown(self, lesson: Lesson, anchors: Tensor, share: float, missed: Tensor) -> Tensor:
        """Which rows of blocks [n, k] read what they should guess: at least one of a block that is chosen, not all."""
        drawn, k = chances(lesson, anchors, 2), missed.shape[1]
        shown, each = torch.zeros_like(missed), torch.arange(k, device=missed.device)
        for row in range(lesson.shape[0]):
            own = (anchors // lesson.shape[1] == row).nonzero()[:, 0]
            chosen = own[drawn[own, 0].argsort()[: int(share * int(missed[own].sum())) // (k - 1)]]
            shown[chosen] = each < 1 + (drawn[chosen, 1:] * (k - 1)).long()
        return shown


LEARN = learn_heads(
    FalconNet,
    FalconLearning,
    lambda options, known: {**stem_sizes(known, 1), **_NO_STEM, "num_heads": options.block_size},
    lambda net, target, options, seed, directory: FalconLearner(net, target, options),
    summary="two tokens a pass on the target's last feature, over an LSTM along the text",
    loss={"smooth_l1": 1.0, "forward_kl": 0.09, "cross_entropy": 0.01},
)
