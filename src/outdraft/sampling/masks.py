"""Which tokens may be written at all: masks, right at every node, because a node's own path counts as written.

    anywhere          banned_token_ids, biases of -inf, bad words of one token, all but allowed_token_ids
    by the output     forced_prefix, min_tokens (no end yet), bad words of several tokens, the sequence's constraint

Which last tokens of bad words may not come next is found at the cost of the longest match:

    words  the old man, old man, old boat        a tree of what stands before the last token, from the back:
    text   ... the old | man and boat are bad              old -> man, boat;   old, the -> man

Masked logits are -inf, for target and drafter alike, so that a rule meets two distributions on the same tokens. Data
in: a sequence, and the draft tokens behind it; data out: rows of logits, masked in place, or a yes or no.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from itertools import chain
from math import inf

import torch
from torch import Tensor

from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.options.params import SamplingParams


class _Node:
    __slots__ = ("before", "never")

    def __init__(self) -> None:
        self.before: dict[int, _Node] = {}
        self.never: list[int] = []


class BadWords:
    """The words of one request; those of a single token are left out."""

    def __init__(self, words: Iterable[Seq[int]]) -> None:
        self._root = _Node()
        for word in words:
            node = self._root
            for token in reversed(word[:-1]):
                if token not in node.before:
                    node.before[token] = _Node()
                node = node.before[token]
            if node is not self._root:
                node.never.append(word[-1])

    def after(self, text: Iterable[int]) -> list[int]:
        """What may not follow `text`, which is read from its end, as far as a word may reach."""
        never: list[int] = []
        node = self._root
        for token in text:
            if token not in node.before:
                break
            node = node.before[token]
            never += node.never
        return never


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
    """[V] bool: what the settings allow at every position; made once, since lists may be long."""
    params, size, device = seq.request.params, logits.shape[-1], logits.device

    def make() -> Tensor:
        may = torch.ones(size, dtype=torch.bool)
        if params.allowed_token_ids is not None:
            may = torch.zeros(size, dtype=torch.bool)
            may[list(params.allowed_token_ids)] = True
        may[list(never_written(params))] = False
        return may.to(device)

    return seq.request.once.of(("writable", size, device), make)


def _unfinished(seq: Sequence, logits: Tensor) -> Tensor:
    """[V] bool: all but what ends a text, whether or not it does under `ignore_eos`; likewise."""
    size, device = logits.shape[-1], logits.device

    def make() -> Tensor:
        may = torch.ones(size, dtype=torch.bool)
        may[list(seq.ends | seq.eos_token_ids)] = False
        return may.to(device)

    return seq.request.once.of(("unfinished", seq.eos_token_ids, size, device), make)


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
    if params.bad_words and (never := bad_words(seq.request).after(_backwards(seq, path))):
        logits[torch.tensor(never, dtype=torch.long, device=logits.device)] = -inf
    if seq.constraint is not None:
        logits.masked_fill_(~seq.constraint.allowed(path).to(logits.device), -inf)


def bad_words(request: Request) -> BadWords:
    """Those of several tokens, as they are looked for; made once."""
    return request.once.of("bad words", lambda: BadWords(request.params.bad_word_ids))


def _backwards(seq: Sequence, path: list[int]) -> Iterator[int]:
    """Output and `path` from the end."""
    output = (seq.tokens[i] for i in range(len(seq.tokens) - 1, seq.prompt_len - 1, -1))
    return chain(reversed(path), output)
