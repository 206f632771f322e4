"""How much each slot of a block counts in the loss.

    decay     slot k, from 1: e^(-(k - 1) / gamma)
    D-PACE    by what the block's verification would reach: w_j = sum over m >= j of q_1 ... q_m, where q_i is
              (1 - alpha) e^(-CE_i) + alpha: a slot behind an unlikely one counts less, and so do late ones

DFlash, Chen et al., 2026, https://arxiv.org/abs/2602.06036; D-PACE as published in speculators 0.9 (alpha = 0.5).
"""

from math import exp

import torch
from torch import Tensor

ALPHA = 0.5


def decaying(count: int, gamma: float) -> list[float]:
    """Of `count` slots."""
    return [exp(-k / gamma) for k in range(count)]


def paced(log_probs: Tensor, counts: Tensor, alpha: float = ALPHA) -> Tensor:
    """Log probabilities [n, S] of the text's tokens, and whether each counts -> weights [n, S]."""
    chance = (1 - alpha) * log_probs.exp() + alpha
    reached = torch.where(counts, chance, torch.ones_like(chance)).cumprod(-1)
    return reached.flip(-1).cumsum(-1).flip(-1) * counts
