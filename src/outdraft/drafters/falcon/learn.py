"""Train Falcon's network on a frozen target: coupled sequential glancing distillation, at random places of its texts.

    block at t    rows t - k .. t - 1      guess f_t -> x_{t+1}, ..., f_{t+k-1} -> x_{t+k}, whatever stands before
    shown         a block's first rows read what they should guess, (f_t, x_{t+1}), in place of what stands there; the
                  rows behind them learn to go on from it

Gao et al., "Falcon", 2024, https://arxiv.org/abs/2412.12639: the share of missed tokens that is shown falls in the
course of a run; the distance of features counts 1, the divergence 0.09, the text's own tokens 0.01. The paper cuts a
text into blocks; here they stand at any place, as when the network drafts. What follows a block reads its guesses.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.learner import Guess, Lesson, Outlook
from outdraft.drafters.falcon.net import FalconNet
from outdraft.drafters.shared.blocks.sees import PackedBlocks
from outdraft.drafters.shared.blocks.spots import chosen_rows, documents_of, rows_inside
from outdraft.drafters.shared.heads.layers import stem_sizes
from outdraft.drafters.shared.heads.learn import HeadLearner, HeadLearning, last_states, learn_heads
from outdraft.drafters.shared.learning.glancing import best_tokens, chances, share_shown
from outdraft.drafters.shared.learning.smooth_l1 import states_beside
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class FalconLearning(HeadLearning):
    """How many tokens a pass guesses, where blocks stand in training, and how much is shown to them."""

    block_size: int = 2  # tokens a pass; the paper's: 2 to 4
    num_blocks: int = 1  # one behind the other, each on what the one before guessed; the paper's: 1
    anchors: int = 512  # blocks of a row of texts at most
    shown_first: float = 0.45  # of the tokens that are missed, in the first step; 0 in both: nothing is shown
    shown_last: float = 0.1  # in the last one
    decay: float = 1.0  # weight of a position against the one before
    noise: float = 0.1

    def __post_init__(self) -> None:
        HeadLearning.__post_init__(self)
        check_range(self, "block_size", least=2, most=16)
        check_range(self, "num_blocks", least=1, most=16)
        check_range(self, "anchors", least=1, most=1 << 20)
        check_range(self, "shown_first", "shown_last", least=0.0, most=1.0)


class FalconLearner(HeadLearner):
    """A network under a frozen target."""

    _options: FalconLearning
    _net: FalconNet

    def look(self, lesson: Lesson) -> Outlook:
        """One guess for each position behind the pending token, as many as its blocks have."""
        net, target, (batch, length) = self._net, self._target, lesson.shape
        k, options = int(net.config.num_heads), self._options
        true = last_states(target, lesson, net.config).to(net.dtype)
        f = last_states(target, lesson, net.config, options.noise).to(net.dtype)
        tokens, documents = lesson.ids[:, 1:].flatten(), lesson.documents[:, :length]
        embeds = target.embed(tokens, lesson.positions + 1).detach().to(net.dtype)  # [B * T, D]
        begins = torch.ones_like(documents, dtype=torch.bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        outputs, states = net.along(embeds.view(batch, length, -1), f.view(batch, length, -1), None, begins)
        outputs, states = outputs.flatten(0, 1), states.flatten(0, 1)

        anchors = chosen_rows(lesson, options.anchors)  # [n] of pending tokens
        flat = documents.flatten()
        anchors = anchors[(anchors % length >= k) & (flat[anchors - k] == flat[anchors])]
        first, each = anchors - k, torch.arange(k, device=anchors.device)
        far, seen = [net.keys(outputs, lesson.positions)], documents_of(lesson, first)

        def guessed(rows: Tensor) -> Tensor:  # [n, m, D] -> [n, k, D]
            if not len(rows):
                return rows[:, -k:]
            blocks = PackedBlocks(far, seen, rows.shape[1], lambda layer: (None, False))
            return net.guess(rows, lesson.positions[first], blocks)

        own = first[:, None] + each  # [n, k]
        rows, state = outputs[own], states[anchors - 1]
        ahead, inside = rows_inside(lesson, anchors, anchors, k)
        shown = self._shown(lesson, anchors, inside, tokens[ahead], guessed, rows)  # [n, k]
        if shown is not None:
            before = torch.where(begins.flatten()[first, None, None], 0, states[first - 1])
            inputs = [torch.where(shown[..., None], x[ahead], y[own]) for x, y in ((embeds, embeds), (true, f))]
            rows, after = net.along(*inputs, before)
            state = after[:, -1]
        guesses, beside = [], []
        count = options.num_blocks if lesson.moment is not None else max(1, -(-lesson.depth // k))
        for block in range(count):
            ahead, inside = rows_inside(lesson, anchors, anchors + block * k, k)
            g = guessed(rows)
            for place in range(k):
                kept = inside[:, place]
                if shown is not None and not block:
                    kept = kept & ~shown[:, place]
                guess = Guess(
                    states=g[kept, place],
                    head=self._says,
                    rows=ahead[kept, place],
                    weight=options.decay ** (block * k + place),
                )
                guesses.append(guess)
                beside.append(states_beside(guess, true[guess.rows]))
            if block + 1 < count:
                more, after = net.along(embeds[ahead], g, state)
                rows, state = torch.cat((rows, more), 1), after[:, -1]
        return Outlook(guesses=guesses, beside=beside)

    def _shown(
        self,
        lesson: Lesson,
        anchors: Tensor,
        inside: Tensor,
        tokens: Tensor,
        guessed: Callable[[Tensor], Tensor],
        rows: Tensor,
    ) -> Tensor | None:
        """Which rows of blocks [n, k] read what they should guess: at least one of a block that is chosen, not all."""
        options, moment, k = self._options, lesson.moment, rows.shape[1]
        share = 0.0 if moment is None else share_shown(moment, options.shown_first, options.shown_last)
        if not share or not len(anchors):
            return None
        with torch.no_grad():
            best = best_tokens(guessed(rows), self._says, self._net.config.vocab_size)
        missed, drawn = (inside & (best != tokens)).sum(1), chances(lesson, anchors, 2)
        shown, each = torch.zeros_like(inside), torch.arange(k, device=rows.device)
        for row in range(lesson.shape[0]):
            own = (anchors // lesson.shape[1] == row).nonzero()[:, 0]
            chosen = own[drawn[own, 0].argsort()[: int(share * int(missed[own].sum())) // (k - 1)]]
            shown[chosen] = each < 1 + (drawn[chosen, 1:] * (k - 1)).long()
        return shown & inside

    def _says(self, g: Tensor) -> Tensor:
        return self._net.logits(g, 0)


LEARN = learn_heads(
    FalconNet,
    FalconLearning,
    lambda options, known: {
        **stem_sizes(known, 1),
        "num_stem_layers": 0,
        "num_heads": options.block_size,
        "own_projections": False,
    },
    lambda net, target, options, seed, directory: FalconLearner(net, target, options),
    summary="two tokens a pass on the target's last feature, over an LSTM along the text",
    loss={"smooth_l1": 1.0, "forward_kl": 0.09, "cross_entropy": 0.01},
)
