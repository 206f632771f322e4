"""Noise on features while a network learns, so that it bears features that are not quite true: its own.

Uniform and as wide as the text is short: (u - 0.5) * 512 / T for a text of T tokens, times the width that is asked for
(0.2 in EAGLE, Li et al., 2024, https://arxiv.org/abs/2401.15077). It is a function of (seed, the batch's ids), and a batch
one of (seed, step), so a run that is resumed sees the noise that it would have seen.
"""

import hashlib

import torch
from torch import Tensor

from outdraft.core.learner import Lesson


def uniform_noise(f: Tensor, lesson: Lesson, seed: int) -> Tensor:
    """Noise of width 1 for features f [N, D] of the first T - 1 rows of each sequence of a lesson."""
    digest = hashlib.sha256(seed.to_bytes(8, "little") + lesson.ids.cpu().numpy().tobytes()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))
    uniform = torch.rand(f.shape, generator=generator).to(f) - 0.5
    documents = lesson.documents[:, : lesson.shape[1]]
    same = documents[:, :, None] == documents[:, None, :]  # [B, T, T]
    lengths = same.sum(-1)[:, :-1].flatten()  # of each row's document, as far as it stands here
    return uniform * (512 / lengths)[:, None].to(f)
