"""The part of the target's vocabulary that a draft can produce, and how files store it.

Chosen are the tokens that the texts ask for most often, ties by the lower id, filled up with the lowest ids that are
left, in ascending order. Zhao et al., "FR-Spec: accelerating large-vocabulary language models via frequency-ranked
speculative sampling", 2025, https://arxiv.org/abs/2502.14856. In files (EAGLE-3's, and all that follow them):

    d2t  int64 [V']   the difference of the target's id and the draft's: target id = i + d2t[i]
    t2d  bool [V]     which of the target's tokens the draft can say
"""

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from outdraft.models.networks.base import Decoder
from outdraft.nn.linear import Linear
from outdraft.options.errors import ModelLoadError


def frequent(counts: Tensor, size: int) -> Tensor:
    """The `size` tokens with the highest `counts` [V], ascending: [size]. Those that never come are the lowest ids."""
    return counts.sort(descending=True, stable=True).indices[:size].sort().values


def differences(vocab: Tensor) -> Tensor:
    """d2t of a vocabulary [V']."""
    return vocab - torch.arange(len(vocab), device=vocab.device)


def membership(vocab: Tensor, vocab_size: int) -> Tensor:
    """t2d of a vocabulary [V']: [V] bool."""
    return torch.zeros(vocab_size, dtype=torch.bool, device=vocab.device).index_fill_(0, vocab, True)


def read_vocab(d2t: Tensor, t2d: Tensor | None, vocab_size: int, where: Path) -> Tensor:
    """The target's ids [V'] of a draft's tokens. Raises `ModelLoadError` for maps that say what cannot be."""
    if d2t.dim() != 1 or d2t.is_floating_point() or d2t.is_complex() or d2t.dtype == torch.bool:
        raise ModelLoadError(f"{where}: d2t must be a list of integers, not {d2t.dtype} {tuple(d2t.shape)}")
    vocab = d2t.long() + torch.arange(len(d2t))
    if not len(vocab) or int(vocab.min()) < 0 or int(vocab.max()) >= vocab_size or bool((vocab.diff() <= 0).any()):
        raise ModelLoadError(
            f"{where}: d2t must hold the difference of the target's id and the draft's, whose tokens ascend below "
            f"{vocab_size}; this one does not"
        )
    if t2d is not None and not torch.equal(t2d.bool(), membership(vocab, vocab_size)):
        raise ModelLoadError(f"{where}: t2d and d2t name different tokens: convert the network again")
    return vocab


class CountedHead(Protocol):
    """A network whose head may score some of the target's tokens alone."""

    vocab: Tensor | None  # [V'] which they are; None: all
    lm_head: Linear | None


@torch.no_grad()
def choose_vocab(net: CountedHead, target: Decoder, counts: Tensor) -> None:
    """Draft with the most frequent of the target's tokens [V]; the head's rows become the target's own of these."""
    if net.vocab is not None and net.lm_head is not None:
        net.vocab = frequent(counts, len(net.vocab)).to(net.vocab.device)
        net.lm_head.weight.copy_(target.head_matrix()[net.vocab])
