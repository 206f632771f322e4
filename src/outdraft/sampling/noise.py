"""Keyed noise: uniforms that are a pure function of integers, the same on every device, in every batch, at any time.

A counter-based generator: the key words are folded into 64 bits, and value i is a mix of (key + i * odd constant): the
splitmix64 construction (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014,
https://doi.org/10.1145/2660193.2660195). No state, so nothing can get out of step.
"""

from enum import IntEnum

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_MUL_1 = 0xBF58476D1CE4E5B9
_MUL_2 = 0x94D049BB133111EB


class Purpose(IntEnum):
    """Different purposes never share a coin."""

    TARGET = 1  # the target's own draw at an absolute position
    ACCEPT = 2  # a rule's accept-or-reject flips of one round
    DRAFT = 3  # a drafter's draws of one round


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * _MUL_1) & _MASK
    word = ((word ^ (word >> 27)) * _MUL_2) & _MASK
    return word ^ (word >> 31)


def fold(*words: int) -> int:
    """One 64-bit key from several integers; order matters."""
    key = 0
    for word in words:
        key = fold_into(key, word)
    return key


def fold_into(key: int, word: int) -> int:
    """One more integer: fold(a, b, c) == fold_into(fold(a, b), c)."""
    return _mix((key + _GAMMA + (word & _MASK)) & _MASK)


def uniform(key: int) -> float:
    """One number in [0, 1) with 53 random bits."""
    return (_mix((key + _GAMMA) & _MASK) >> 11) * 2.0**-53


def uniforms(key: int, n: int, device: torch.device | None = None) -> Tensor:
    """[n] float64 in (0, 1), never 0: value i depends on (key, i) alone."""
    word = torch.arange(1, n + 1, dtype=torch.int64, device=device).mul_(_signed(_GAMMA)).add_(_signed(key))
    word = (word ^ _shift(word, 30)).mul_(_signed(_MUL_1))
    word = (word ^ _shift(word, 27)).mul_(_signed(_MUL_2))
    word = word ^ _shift(word, 31)
    return _shift(word, 11).to(torch.float64).add_(0.5).mul_(2.0**-53)


def _shift(word: Tensor, by: int) -> Tensor:
    """Logical right shift of int64 (torch's is arithmetic)."""
    return (word >> by) & ((1 << (64 - by)) - 1)
