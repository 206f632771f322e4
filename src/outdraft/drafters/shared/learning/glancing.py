"""Glancing: a draft of several tokens at once is shown some of them while it learns, the fewer the better it is.

    first pass     a guess of everything; the text's tokens that it misses are counted
    second pass    a share of so many, at random, stand where they were to be guessed; the others are learned

Qian et al., "Glancing transformer for non-autoregressive neural machine translation", 2020,
https://arxiv.org/abs/2008.07905. What is shown is a function of the run's seed, the step and the row of texts.
"""

import torch
from torch import Tensor

from outdraft.core.learner import Head, Lesson

_PURPOSE = 1
_CHUNK = 1 << 24  # logits that are made at once


def share_shown(lesson: Lesson, first: float, last: float) -> float:
    """Of what is missed, how much is shown: `first` in a run's first step, `last` in its last one; 0 in exams."""
    moment = lesson.moment
    return 0.0 if moment is None else first + (last - first) * min(1.0, moment.step / max(1, moment.steps))


def chances(lesson: Lesson, rows: Tensor, width: int) -> Tensor:
    """Uniform numbers [n, width] in training, for flat rows [n] of a lesson that rise."""
    assert lesson.moment is not None
    drawn, texts = [], rows // lesson.shape[1]
    for row in range(lesson.shape[0]):
        size = (int((texts == row).sum()), width)
        drawn.append(torch.rand(size, generator=lesson.moment.generator(row, _PURPOSE)))
    return torch.cat(drawn).to(rows.device)


@torch.no_grad()
def best_tokens(states: Tensor, head: Head, width: int) -> Tensor:
    """The likeliest tokens [n, S] of states [n, S, D]. `width`: logits of a state."""
    parts = states.flatten(0, 1).split(max(1, _CHUNK // width))  # type: ignore[no-untyped-call]
    return torch.cat([head(part).argmax(-1) for part in parts]).view(states.shape[:2])
