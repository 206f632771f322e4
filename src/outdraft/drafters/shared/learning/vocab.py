"""The part of the target's vocabulary that a draft can produce, and how files store it.

Chosen are the tokens that the texts ask for most often, ties by the lower id, filled up with the lowest ids that are
left, in ascending order. Zhao et al., "FR-Spec: accelerating large-vocabulary language models via frequency-ranked
speculative sampling", 2025, https://arxiv.org/abs/2502.14856. In files (EAGLE-3's, and all that follow them):

    d2t  int64 [V']   the difference of the target's id and the draft's: target id = i + d2t[i]
    t2d  bool [V]     which of the target's tokens the draft can say; alone, it says all

A draft with a head of its own learns a row for each of them; one that borrows its target's head reads that head's rows
(`CutHead`). Tokens outside have probability 0 in the draft's distribution, so that rules stay exact.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from outdraft.models.networks.base import Decoder
from outdraft.models.networks.port import TargetPort, facts_of, lent_parts
from outdraft.nn.linear import Linear
from outdraft.options.errors import CapabilityError, ConfigError, ModelLoadError
from outdraft.weights.renamed import open_tensors

STORED = ("d2t", "t2d")


class CutHead(Linear):
    """Rows of the target's head, for the tokens that a draft can say: neither learned nor stored.

    Raises `CapabilityError` for a target that caps its logits, since a matrix does not.
    """

    def __init__(
        self, target: Decoder | TargetPort, vocab: Tensor, dtype: torch.dtype, device: torch.device | None
    ) -> None:
        if (cap := facts_of(target).logit_cap) is not None:
            raise CapabilityError(
                f"a draft of {len(vocab)} tokens reads their rows of its target's head, which caps its logits "
                f"(logit_cap={cap:g}): train it without draft_vocab_size, or, if it may have them, with "
                "projections of its own (own_projections=true)"
            )
        rows = lent_parts(target).head_rows(vocab)
        super().__init__(rows.shape[1], 0, False, dtype, rows.device)
        del self.weight
        self.register_buffer("weight", rows.to(device or rows.device, dtype), persistent=False)


def first_vocab(size: int, vocab_size: int, device: torch.device) -> Tensor | None:
    """Until the texts are known, a smaller vocabulary is that of the lowest ids [size]; None: all tokens, as of size 0.

    Raises `ConfigError` for more than the target has.
    """
    if size > vocab_size:
        raise ConfigError(f"draft_vocab_size={size}: the target has {vocab_size} tokens")
    return torch.arange(size, device=device) if 0 < size < vocab_size else None


def stored(vocab: Tensor | None, vocab_size: int) -> dict[str, Tensor]:
    """The tensors of a vocabulary [V']; none where it is whole."""
    if vocab is None:
        return {}
    said = torch.zeros(vocab_size, dtype=torch.bool, device=vocab.device).index_fill_(0, vocab, True)
    return {"d2t": vocab - torch.arange(len(vocab), device=vocab.device), "t2d": said}


def find_vocab(tensors: Mapping[str, Tensor], size: int | None, vocab_size: int, where: Path) -> Tensor | None:
    """The target's ids [V'] of the tokens that a draft says; None: all. `size`: how many its config.json names, if any.

    Raises `ModelLoadError` for maps that say what cannot be, and where they are missing or of another size.
    """
    t2d, key = tensors.get("t2d"), "d2t" if "d2t" in tensors else "t2d"
    if "d2t" in tensors:
        vocab = _read(tensors["d2t"], t2d, vocab_size, where)
    elif t2d is not None:
        if t2d.shape != (vocab_size,) or t2d.is_floating_point():
            raise ModelLoadError(
                f"{where}: t2d must say true or false of {vocab_size} tokens, and is {t2d.dtype} {tuple(t2d.shape)}: "
                "take it and config.json from one place"
            )
        vocab = t2d.nonzero().flatten()
    elif size is None or size == vocab_size:
        return None
    else:
        raise ModelLoadError(
            f"{where}: a draft vocabulary of {size} out of {vocab_size} tokens, and no d2t that says which"
        )
    if not len(vocab) or (size is not None and len(vocab) != size):
        raise ModelLoadError(
            f"{where}: {key} is of {len(vocab)} tokens, and config.json (draft_vocab_size) asks for "
            f"{size or 'one at least'}"
        )
    return None if len(vocab) == vocab_size else vocab


def _read(d2t: Tensor, t2d: Tensor | None, vocab_size: int, where: Path) -> Tensor:
    if d2t.dim() != 1 or d2t.is_floating_point() or d2t.is_complex() or d2t.dtype == torch.bool:
        raise ModelLoadError(f"{where}: d2t must be a list of integers, not {d2t.dtype} {tuple(d2t.shape)}")
    vocab = d2t.long() + torch.arange(len(d2t))
    if not len(vocab) or int(vocab.min()) < 0 or int(vocab.max()) >= vocab_size or bool((vocab.diff() <= 0).any()):
        raise ModelLoadError(
            f"{where}: d2t must hold the difference of the target's id and the draft's, whose tokens ascend below "
            f"{vocab_size}; this one does not"
        )
    if t2d is not None and not torch.equal(t2d.bool(), stored(vocab, vocab_size)["t2d"]):
        raise ModelLoadError(f"{where}: t2d and d2t name different tokens: convert the network again")
    return vocab


def whole_logits(logits: Tensor, vocab: Tensor | None, vocab_size: int) -> Tensor:
    """Logits [N, V'] of some tokens as logits [N, V] of all: -inf, a probability of 0, for the others.

    A guess outside the draft's vocabulary is never made; a rule that is exact stays so, because q is given as it was.
    """
    if vocab is None:
        return logits
    return logits.new_full((len(logits), vocab_size), -float("inf")).index_copy_(1, vocab, logits)


def vocab_in(directory: Path, size: int, vocab_size: int) -> Tensor | None:
    """The vocabulary [V'] of a network in our own layout; None: all, as of size 0. Raises as `find_vocab` does."""
    return find_vocab(open_tensors(directory), size or vocab_size, vocab_size, directory)


class CountedHead(Protocol):
    """A network whose head may score some of the target's tokens alone."""

    vocab: Tensor | None  # [V'] which they are; None: all
    lm_head: Linear | None


def require_whole(net: CountedHead, layout: str) -> None:
    """Raise `CapabilityError` for a draft in a part of its target's vocabulary, which a published layout cannot say."""
    if net.vocab is not None:
        raise CapabilityError(
            f"this draft says {len(net.vocab)} of its target's tokens (draft_vocab_size), and {layout} layout has no "
            "place for which they are: keep it in ours, or train one without draft_vocab_size"
        )


@torch.no_grad()
def choose_vocab(net: CountedHead, target: Decoder, counts: Tensor) -> None:
    """Draft with the most frequent of the target's tokens by `counts` [V], ascending; those that never come are the
    lowest ids. The head's rows become the target's own of these.
    """
    if net.vocab is None:
        return
    best = counts.sort(descending=True, stable=True).indices[: len(net.vocab)].sort().values
    net.vocab = best.to(net.vocab.device)
    if net.lm_head is not None:
        net.lm_head.weight.copy_(target.head_rows(net.vocab))
