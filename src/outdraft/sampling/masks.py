"""Which tokens may be written at all: masks, right at every node, because a node's own path counts as written.

Masked logits are -inf, for target and drafter alike, so that a rule meets two distributions on the same tokens. Data
in: a sequence, and the draft tokens behind it; data out: rows of logits masked in place, or a yes or no.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.sequence import Sequence


def mask(seq: Sequence, logits: Tensor, path: Seq[int]) -> None:
    """Mask one row `logits` [V] in place; `path`: the draft tokens between `seq.tokens` and this row's prediction."""
    params = seq.request.params
    if seq.num_output + len(path) < params.min_tokens:
        ends = sorted({*params.stop_token_ids, *seq.eos_token_ids})
        logits[torch.tensor(ends, dtype=torch.long, device=logits.device)] = -torch.inf
    if seq.constraint is not None:
        logits.masked_fill_(~seq.constraint.allowed(path).to(logits.device), -torch.inf)


def allows(seq: Sequence, token: int) -> bool:
    """Whether the sequence may go on with this token."""
    if seq.num_output < seq.request.params.min_tokens and token in {
        *seq.request.params.stop_token_ids,
        *seq.eos_token_ids,
    }:
        return False
    return seq.constraint is None or bool(seq.constraint.allowed([])[token])
