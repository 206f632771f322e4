"""The distance between a state that a draft guesses and the target's own, as a loss beside those of its tokens.

    smooth_l1    mean over channels of d^2 / 2 where |d| < 1, else |d| - 1/2        d: guessed state - true state

"EAGLE", Li et al. 2024, https://arxiv.org/abs/2401.15077.
"""

import torch
from torch import Tensor

from outdraft.core.learner import Beside, Guess


def smooth_l1(guessed: Tensor, true: Tensor) -> Tensor:
    """Between states [n, D]: quadratic where they are near, so that outlying channels do not rule. Returns [n]."""
    wide = guessed if guessed.dtype == torch.float64 else guessed.float()
    return torch.nn.functional.smooth_l1_loss(wide, true.to(wide.dtype), reduction="none").mean(-1)


def states_beside(guess: Guess, true: Tensor) -> Beside:
    """How far a guess's states are from the true ones [N, D], as heavy as the guess."""
    return Beside(name=smooth_l1.__name__, values=smooth_l1(guess.states, true), rows=guess.rows, weight=guess.weight)
