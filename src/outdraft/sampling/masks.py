"""Which tokens may be written at all: masks, right at every node, because a node's own path counts as written.

    anywhere          banned_token_ids, biases of -inf, bad words of one token, all but allowed_token_ids
    by the output     forced_prefix, min_tokens (no end yet), bad words of several tokens, the sequence's constraint

Masked logits are -inf, for target and drafter alike, so that a rule meets two distributions on the same tokens. Data
in: a sequence, and the draft tokens behind it; data out: rows of logits, masked in place, or a yes or no.
"""

from collections.abc import Sequence as Seq
from math import inf

import torch
from torch import Tensor

from outdraft.core.params import SamplingParams
from outdraft.core.sequence import Sequence


def mask_rows(seq: Sequence, logits: Tensor, paths: Seq[list[int]] | None) -> None:
    """Mask rows `logits` [n, V] in place. `paths[i]`: the draft tokens between `seq.tokens` and what row i predicts."""
    params = seq.request.params
    if params.banned_token_ids or params.bad_words or params.logit_bias or params.allowed_token_ids is not None:
        logits.masked_fill_(~_writable(seq, logits), -inf)
    if seq.masks_by_history:
        for i, row in enumerate(logits):
            _mask(seq, row, paths[i] if paths is not None else [])


def allows(seq: Sequence, token: int, vocab_size: int) -> bool:
    """Whether the sequence may go on with this token."""
    row = torch.zeros(1, vocab_size)
    mask_rows(seq, row, None)
    return bool(row[0, token] == 0)


def never_written(params: SamplingParams) -> set[int]:
    """The tokens that the settings forbid at every position by name; `allowed_token_ids` may leave out more."""
    alone = {word[0] for word in params.bad_word_ids if len(word) == 1}
    return {*params.banned_token_ids, *alone, *(token for token, bias in params.logit_bias.items() if bias == -inf)}


def _writable(seq: Sequence, logits: Tensor) -> Tensor:
    """[V] bool: what the settings allow at every position; kept on the sequence, since lists may be long."""
    if seq.writable is None:
        params, size = seq.request.params, logits.shape[-1]
        may = torch.ones(size, dtype=torch.bool)
        if params.allowed_token_ids is not None:
            may = torch.zeros(size, dtype=torch.bool)
            may[list(params.allowed_token_ids)] = True
        may[list(never_written(params))] = False
        seq.writable = may.to(logits.device)
    return seq.writable.to(logits.device)


def _unfinished(seq: Sequence, logits: Tensor) -> Tensor:
    """[V] bool: all but what ends a text, whether or not it does under `ignore_eos`; likewise."""
    if seq.unfinished is None:
        may = torch.ones(logits.shape[-1], dtype=torch.bool)
        may[list(seq.ends | seq.eos_token_ids)] = False
        seq.unfinished = may.to(logits.device)
    return seq.unfinished.to(logits.device)


def _mask(seq: Sequence, logits: Tensor, path: list[int]) -> None:
    """What the output and `path` forbid, in one row [V]."""
    params = seq.request.params
    at = seq.num_output + len(path)
    if at < len(params.prefix_ids):
        forced = params.prefix_ids[at]
        kept = logits[forced].clone()
        logits.fill_(-inf)
        logits[forced] = kept
    if at < params.min_tokens:
        logits.masked_fill_(~_unfinished(seq, logits), -inf)
    if never := [word[-1] for word in params.bad_word_ids if len(word) > 1 and _ends_with(seq, path, word[:-1])]:
        logits[torch.tensor(never, dtype=torch.long, device=logits.device)] = -inf
    if seq.constraint is not None:
        logits.masked_fill_(~seq.constraint.allowed(path).to(logits.device), -inf)


def _ends_with(seq: Sequence, path: list[int], tokens: Seq[int]) -> bool:
    """Whether output and `path` end with these tokens, at least one."""
    if len(tokens) > seq.num_output + len(path):
        return False
    return [*seq.tokens[-len(tokens) :], *path][-len(tokens) :] == list(tokens)
