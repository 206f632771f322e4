"""Noise on the states that a draft learns from, so that it forgives its own at drafting.

Li et al., "EAGLE", 2024, https://arxiv.org/abs/2401.15077; Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109
(Hydra++). A function of the run's seed and the step, so that a resumed run ends with the same bits.
"""

import torch
from torch import Tensor

from outdraft.core.learner import Lesson

_PRIME = 15_485_863  # between the streams of one batch


def with_noise(states: Tensor, lesson: Lesson, width: float, *, stream: int = 0) -> Tensor:
    """`states` plus numbers drawn uniformly from [-width, width), in training; as they are in an exam.

    `stream`: tells several draws of one batch apart.
    """
    if not width or lesson.moment is None:
        return states
    generator = torch.Generator().manual_seed((lesson.moment.seed + stream * _PRIME) % (1 << 63))
    drawn = torch.rand(states.shape, generator=generator).to(states)
    return states + (2 * drawn - 1) * width
