"""The next draft token of each row, and the distribution it was really drawn from.

A guess by argmax has no distribution (it is deterministic); a sampled one carries the draft's warped distribution,
which the rule needs exactly as it was used (Leviathan, Kalman and Matias, "Fast inference from transformers via
speculative decoding", 2022, https://arxiv.org/abs/2211.17192). The coins are the drafter's own, so a result does not
depend on the batch. Data in: draft logits [n, V] of one step; data out: token ids, distributions [V] and confidences of
the n rows.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import exp, isfinite
from typing import Literal, cast

import torch
from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.kernels.decoder import choice
from outdraft.kernels.decoder.top import top_tokens
from outdraft.options.errors import NumericsError
from outdraft.sampling.warp import warp_nodes

# draw as the request does, where its rule accepts more of what is drawn | draw as it does | always the argmax
Sample = Literal["auto", "match", "greedy"]


@dataclass(slots=True)
class Choices:
    """One step's tokens for n rows."""

    tokens: list[int]
    distributions: list[Tensor | None]  # [V] each; None: an argmax
    confidences: list[float]  # draft probability of each token; 1 where not asked for


def takes_argmax(seq: Sequence, sample: Sample) -> bool:
    """Whether this sequence's guesses are deterministic."""
    if sample == "greedy" or seq.request.params.greedy:
        return True
    return sample == "auto" and not seq.prefers_drawn


def takes_plain_argmax(seq: Sequence, sample: Sample) -> bool:
    """Whether this sequence's guesses are the argmax of the raw logits."""
    return takes_argmax(seq, sample) and not seq.edits_logits


class Chooser:
    """How each sequence of one round chooses. What does not change from step to step is worked out once."""

    __slots__ = ("_argmax", "_confident", "_plain", "_seqs")

    def __init__(self, seqs: Seq[Sequence], *, sample: Sample, confident: bool) -> None:
        self._seqs = seqs
        self._confident = confident  # whether confidences are wanted
        self._argmax = [takes_argmax(seq, sample) for seq in seqs]
        self._plain = [takes_plain_argmax(seq, sample) for seq in seqs]

    def __call__(self, rows: list[int], logits: Tensor, paths: Seq[list[int]]) -> Choices:
        """One token for each row of `logits` [n, V]; row j belongs to sequence i = rows[j], which drafted `paths[i]`.

        Raises `NumericsError` on NaN or infinite logits.
        """
        if all([self._plain[i] for i in rows]):
            tokens, confidences = best_tokens(self._seqs, rows, logits, confident=self._confident)
            return Choices(tokens, [None] * len(tokens), confidences)
        made = Choices([], [], [])
        for j, i in enumerate(rows):
            seq, path = self._seqs[i], paths[i]
            distribution = warp_nodes(seq, logits[j : j + 1], [path], guesses=True)[0]
            if self._argmax[i]:
                token = int(distribution.argmax())
                made.distributions.append(None)
            else:
                token = seq.draft_coins(seq).draw(distribution, len(path), len(path))[0]
                made.distributions.append(distribution)
            made.tokens.append(token)
            # The distribution of an argmax is one-hot or was not drawn from, so its mass says nothing: the raw
            # probability does.
            source = torch.softmax(logits[j].float(), -1) if self._argmax[i] else distribution
            made.confidences.append(float(source[token]) if self._confident else 1.0)
        return made


def best_tokens(
    seqs: Seq[Sequence], rows: list[int], logits: Tensor, *, confident: bool
) -> tuple[list[int], list[float]]:
    """Argmax of each row of `logits` [n, V], with its raw probability if `confident`."""
    if not confident and (found := choice.best_tokens(logits)) is not None:
        return found, [1.0] * len(found)
    best = logits.max(-1)
    values = cast(list[float], best.values.tolist())
    check_finite(seqs, rows, values)
    if not confident:
        return best.indices.tolist(), [1.0] * len(values)
    mass = torch.logsumexp(logits.float(), -1)
    return best.indices.tolist(), torch.exp(best.values.float() - mass).tolist()


Row = tuple[list[int], list[float], list[float]]  # tokens, best first; their log probabilities; their probabilities


def top_rows(seqs: Seq[Sequence], owners: list[int], logits: Tensor, count: int) -> list[Row]:
    """The best `count` tokens of each row of `logits` [n, V]; row j belongs to sequence `owners[j]`.

    Raises `NumericsError` on NaN or infinite logits.
    """
    count = max(1, min(count, logits.shape[-1]))
    if (found := top_tokens(logits, count)) is not None:
        return [(ids, logs, [exp(log) for log in logs]) for ids, logs in zip(*found, strict=True)]
    logits = logits.float() if logits.dtype != torch.float64 else logits
    best = torch.log_softmax(logits, -1).topk(count, -1)
    ids, log_probs, probs = best.indices.tolist(), best.values.tolist(), best.values.exp().tolist()
    check_finite(seqs, owners, [row[0] for row in log_probs])
    return list(zip(ids, log_probs, probs, strict=True))


def check_finite(seqs: Seq[Sequence], rows: list[int], largest: Seq[float]) -> None:
    """A row's largest logit suffices: it is NaN or infinite if the row holds NaN or +inf, or no token at all."""
    for i, value in zip(rows, largest, strict=True):
        if not isfinite(value):
            seq = seqs[i]
            raise NumericsError(
                f"sequence {seq.id}: the drafter's logits hold {value} at position {len(seq.tokens)}: its weights are "
                "damaged or overflow in this dtype; load it in float32"
            )
