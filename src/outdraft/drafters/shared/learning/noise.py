"""Noise on the states that a draft learns from, so that it tolerates its own errors when it drafts.

Li et al., "EAGLE", 2024, https://arxiv.org/abs/2401.15077; Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109
(Hydra++). A function of the run's seed, the step and the row, so that a resumed run ends with the same bits, and
neither passes nor workers change what a row reads.
"""

import torch
from torch import Tensor

from outdraft.core.learner import Lesson


def with_noise(states: Tensor, lesson: Lesson, width: float, *, stream: int = 0) -> Tensor:
    """`states` plus numbers drawn uniformly from [-width, width), in training; as they are in an exam.

    `states`: [B * n, D], as many of each of the lesson's sequences. `stream`: tells several draws of one batch apart.
    """
    if not width or lesson.moment is None:
        return states
    batch = lesson.shape[0]
    size = (len(states) // batch, *states.shape[1:])
    drawn = [torch.rand(size, generator=lesson.moment.generator(row, stream)) for row in range(batch)]
    return states + (2 * torch.cat(drawn).to(states) - 1) * width
