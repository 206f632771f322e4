"""Repetition, presence and frequency penalties, right at every node: a node's own path counts as text already written.

Repetition (Keskar et al., "CTRL", 2019, https://arxiv.org/abs/1909.05858): a token of prompt or output has a positive
logit divided and a negative one multiplied. Presence and frequency, as in the OpenAI API: a token of the output loses a
constant, and a constant times its count.
"""

from collections import Counter

import torch
from torch import Tensor

from outdraft.core.sequence import Sequence


def penalise(seq: Sequence, logits: Tensor, path: list[int]) -> None:
    """Change one row `logits` [V] in place; `path`: the draft tokens between `seq.tokens` and this row's prediction."""
    params = seq.request.params
    counts: Counter[int] = seq.output_counts
    if path:
        counts = counts + Counter(path)
    if params.repetition_penalty != 1.0:
        present = seq.prompt_ids | counts.keys()
        ids = torch.tensor(sorted(present), dtype=torch.long, device=logits.device)
        chosen = logits[ids]
        factor = params.repetition_penalty
        logits[ids] = torch.where(chosen > 0, chosen / factor, chosen * factor)
    if counts and (params.presence_penalty or params.frequency_penalty):
        ids = torch.tensor(list(counts), dtype=torch.long, device=logits.device)
        times = torch.tensor(list(counts.values()), dtype=logits.dtype, device=logits.device)
        logits[ids] -= params.presence_penalty + params.frequency_penalty * times
