"""The next draft token of each row, and the law it was really drawn from.

A guess by argmax has no law (it is deterministic); a sampled one carries the draft's warped law, which the rule needs
exactly as it was used (Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192). The coins are the drafter's own, so a result does not depend on the batch.
Data in: draft logits [n, V] of one step; data out: token ids, laws [V] and confidences of the n rows.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from math import isfinite
from typing import Literal, cast

import torch
from torch import Tensor

from outdraft.core.errors import ConfigError, NumericsError
from outdraft.core.sequence import Sequence
from outdraft.kernels import choice
from outdraft.sampling.warp import warp_nodes

Sample = Literal["match", "greedy"]  # draw as the request does | always the argmax


@dataclass(slots=True)
class Choices:
    """One step's tokens for n rows."""

    tokens: list[int]
    laws: list[Tensor | None]  # [V] each; None: an argmax
    confidences: list[float]  # draft probability of each token; 1 where nobody asked


def check_sample(sample: str) -> None:
    """Raise `ConfigError` unless `sample` is a known way."""
    if sample not in ("match", "greedy"):
        raise ConfigError(
            f"sample={sample!r}: it is 'match' (draw as the request does) or 'greedy' (always the argmax)"
        )


def takes_argmax(seq: Sequence, sample: Sample) -> bool:
    """Whether this sequence's guesses are deterministic."""
    return sample == "greedy" or seq.request.params.greedy


def takes_plain_argmax(seq: Sequence, sample: Sample) -> bool:
    """Whether this sequence's guesses are the argmax of the raw logits."""
    return takes_argmax(seq, sample) and not seq.request.params.edits_logits


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
            law = warp_nodes(seq, logits[j : j + 1], [path])[0]
            if self._argmax[i]:
                token = int(law.argmax())
                made.laws.append(None)
            else:
                token = seq.draft_coins(seq).draw(law, len(path), len(path))[0]
                made.laws.append(law)
            made.tokens.append(token)
            # The law of an argmax is one-hot or was not drawn from, so its mass says nothing: the raw probability does.
            source = torch.softmax(logits[j].float(), -1) if self._argmax[i] else law
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


def check_finite(seqs: Seq[Sequence], rows: list[int], largest: Seq[float]) -> None:
    """The largest logit of each row tells: it is NaN or infinite if the row holds NaN or +inf, or no token at all."""
    for i, value in zip(rows, largest, strict=True):
        if not isfinite(value):
            seq = seqs[i]
            raise NumericsError(
                f"sequence {seq.id}: the drafter's logits hold {value} at position {len(seq.tokens)}: its weights are "
                "damaged or overflow in this dtype; load it in float32"
            )
