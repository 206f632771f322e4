"""Classifier-free guidance: one row of logits out of two, one with the prompt and one with another prompt or none.

    log u + scale * (log c - log u)        c: with the prompt (conditional), u: with the negative prompt

Sanchez et al., "Stay on topic with classifier-free guidance", 2023, https://arxiv.org/abs/2306.17806. Both rows are
log probabilities, as in transformers' `UnbatchedClassifierFreeGuidanceLogitsProcessor`, and the result is not
normalised again; that matters to the repetition penalty alone, which treats positive and negative logits differently.
"""

import torch
from torch import Tensor


def guide(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Logits [n, V] and [n, V] -> [n, V], in float32 at least. A row's result does not depend on the other rows.

    A token that one of them masks (-inf) keeps its conditional log probability, so what the model forbids stays so.
    """
    with_prompt, without = _log_probs(conditional), _log_probs(unconditional)
    guided = without + scale * (with_prompt - without)
    return torch.where(with_prompt.isneginf() | without.isneginf(), with_prompt, guided)


def stretch(scale: float) -> float:
    """By how much guidance can widen a change: the difference of two guided logits moves by at most so many times
    what differences of the conditional and the unconditional ones move."""
    return abs(scale) + abs(1 - scale)


def _log_probs(logits: Tensor) -> Tensor:
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide, -1)
