"""`SequenceComplexityEstimator`: how hard the next tokens will be to guess, from 0 (easy) to 1.

    repetition    recent tokens that a look at the last two before them would have given: they make it easy
    entropy       of the recent distributions of the target (or draft), in nats: it makes it hard
    rejections    the recent share of examined draft tokens that were refused: it makes it hard

Each part raises the score where it raises the expected rejections. Length says little: a long context often helps.
"""

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass

_SHORTEST = 3  # tokens before anything can repeat


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceComplexityEstimator:
    """`window`: recent tokens, distributions and rounds that count; `scale`: nats at which the entropy's part is 1 -
    1/e."""

    window: int = 64
    scale: float = 2.0

    def estimate(self, tokens: Seq[int], *, entropies: Seq[float] = (), rejections: Seq[float] = ()) -> float:
        """The mean of the parts that are known. `rejections`: a rate in [0, 1] for each round or text, oldest first."""
        parts = [1 - self.repetition(tokens)] if len(tokens) >= _SHORTEST else []
        if entropies:
            recent = entropies[-self.window :]
            parts.append(1 - math.exp(-sum(recent) / len(recent) / self.scale))
        if rejections:
            late = rejections[-self.window :]
            parts.append(sum(late) / len(late))
        return sum(parts) / len(parts) if parts else 0.5

    def repetition(self, tokens: Seq[int]) -> float:
        """The share of the last `window` tokens that followed the same two tokens when these were last seen."""
        followed: dict[tuple[int, int], int] = {}
        told: list[bool] = []
        for i in range(2, len(tokens)):
            pair = (tokens[i - 2], tokens[i - 1])
            told.append(followed.get(pair) == tokens[i])
            followed[pair] = tokens[i]
        recent = told[-self.window :]
        return sum(recent) / len(recent) if recent else 0.0
