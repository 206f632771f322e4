"""Glancing: a draft of several tokens at once is shown some of them while it learns, the fewer the better it is.

    first pass     a guess of everything; the text's tokens that it misses are counted
    second pass    a share of so many, at random, stand where they were to be guessed; the others are learned

Qian et al., "Glancing transformer for non-autoregressive neural machine translation", 2020,
https://arxiv.org/abs/2008.07905. What is shown is a function of the run's seed, the step and the row of texts.
"""

import torch
from torch import Tensor

from outdraft.core.learner import Head, Lesson, Moment

_PURPOSE = 1
_CHUNK = 1 << 24  # logits that are made at once


def share_shown(moment: Moment, start: float, end: float) -> float:
    """Of what is missed, how much is shown: from `start` in a run's first step to `end` in its last one."""
    return start + (end - start) * min(1.0, moment.step / max(1, moment.steps))


def chances(lesson: Lesson, rows: Tensor, width: int) -> Tensor:
    """Uniform numbers [n, width] in training, for flat rows [n] of a lesson that rise."""
    assert lesson.moment is not None
    counts = torch.bincount(rows // lesson.shape[1], minlength=lesson.shape[0]).tolist()
    drawn = [torch.rand((n, width), generator=lesson.moment.generator(row, _PURPOSE)) for row, n in enumerate(counts)]
    return torch.cat(drawn).to(rows.device)


@torch.no_grad()
def best_tokens(states: Tensor, head: Head, width: int) -> Tensor:
    """The likeliest tokens [n, S] of states [n, S, D]. `width`: logits of a state."""
    parts = states.flatten(0, 1).split(max(1, _CHUNK // width))  # type: ignore[no-untyped-call]
    return torch.cat([head(part).argmax(-1) for part in parts]).view(states.shape[:2])
