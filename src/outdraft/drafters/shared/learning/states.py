"""Learning from states: noise on those that a draft reads, and how far those that it guesses are from the target's.

    noise        so that a draft tolerates its own errors when it drafts
    smooth_l1    mean over channels of d^2 / 2 where |d| < 1, else |d| - 1/2        d: guessed state - true state

Li et al., "EAGLE", 2024, https://arxiv.org/abs/2401.15077; Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109
(Hydra++). Noise is a function of the run's seed, the step and the row, so that a resumed run ends with the same bits,
and neither passes nor workers change what a row reads.
"""

import torch
from torch import Tensor

from outdraft.core.learner import Beside, Guess, Lesson


def with_noise(states: Tensor, lesson: Lesson, width: float) -> Tensor:
    """`states` plus numbers drawn uniformly from [-width, width), in training; as they are in an exam.

    `states`: [B * n, D], as many of each of the lesson's sequences.
    """
    if not width or lesson.moment is None:
        return states
    batch = lesson.shape[0]
    size = (len(states) // batch, *states.shape[1:])
    drawn = [torch.rand(size, generator=lesson.moment.generator(row)) for row in range(batch)]
    return states + (2 * torch.cat(drawn).to(states) - 1) * width


def smooth_l1(guessed: Tensor, true: Tensor) -> Tensor:
    """Between states [n, D]: quadratic where they are near, so that outlying channels do not rule. Returns [n]."""
    wide = guessed if guessed.dtype == torch.float64 else guessed.float()
    return torch.nn.functional.smooth_l1_loss(wide, true.to(wide.dtype), reduction="none").mean(-1)


def states_beside(guess: Guess, true: Tensor) -> Beside:
    """How far a guess's states are from the true ones [N, D], as heavy as the guess."""
    return Beside(name=smooth_l1.__name__, values=smooth_l1(guess.states, true), rows=guess.rows, weight=guess.weight)
