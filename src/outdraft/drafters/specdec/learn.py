"""Train SpecDec's network on a frozen target: slots see some of the text's tokens in their block, and guess the rest.

Xia et al., 2022, https://arxiv.org/abs/2203.16487: glancing training on what the target wrote, cross-entropy of its
tokens, all slots alike. The share of missed tokens that a block is shown falls in the course of a run.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.learner import Lesson
from outdraft.drafters.shared.blocks.learn import BlockLearner, BlockLearning
from outdraft.drafters.shared.blocks.method import learn_blocks
from outdraft.drafters.shared.learning.glancing import best_tokens, chances, share_shown
from outdraft.drafters.specdec.kind import KIND
from outdraft.options.errors import ConfigError
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDecLearning(BlockLearning):
    """The network's shape, and how much of a block is shown to it."""

    pace: bool = False
    gamma: float = 1e6  # all slots count alike
    shown_first: float = 0.5  # of the tokens that a block misses, in the first step; 0 in both: nothing is shown
    shown_last: float = 0.3  # in the last one

    def __post_init__(self) -> None:
        BlockLearning.__post_init__(self)
        check_range(self, "shown_first", "shown_last", least=0.0, most=1.0)
        if self.from_anchor:
            raise ConfigError("from_anchor=true: the anchor's slot has no query of its own: leave it out")


class SpecDecLearner(BlockLearner):
    """Slots that are shown tokens in training."""

    _options: SpecDecLearning

    def _shown(
        self, lesson: Lesson, anchors: Tensor, rows: Tensor, inside: Tensor, states: Callable[[], Tensor]
    ) -> Tensor | None:
        """At random places of each block, as many as its misses say."""
        share = share_shown(lesson, self._options.shown_first, self._options.shown_last)
        if not share or not len(anchors):
            return None
        tokens = lesson.ids[:, 1:].flatten()[rows]  # [n, S]
        with torch.no_grad():
            best = best_tokens(states()[:, 1:], self._scores, self.net.config.draft_vocab_size)
        missed = inside & ((best if self.net.vocab is None else self.net.vocab[best]) != tokens)
        order = chances(lesson, anchors, rows.shape[1]).masked_fill(~inside, 2.0).argsort(-1).argsort(-1)
        return torch.where(order < (share * missed.sum(1, keepdim=True)).long(), tokens, -1)


LEARN = learn_blocks(
    KIND,
    SpecDecLearning,
    lambda options: None,
    summary="a block of tokens in one pass, by slots with a learned query each",
    teaches=SpecDecLearner,
    loss={"cross_entropy": 1.0},
)
