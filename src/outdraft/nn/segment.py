"""The rows of one sequence in a pass: a chain, or a tree over what the cache holds.

    cache   [ 0 1 2 ... base-1 ]                     parents (-1, 0, 0, 2)      depth 0 1 1 2
    rows                        a --+-- b
                                    +-- c -- d       d sees 0..base-1, a, c, d

Data: parent indices and flags of n rows -> paths, visibility and depths, all on the host, once a pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

BULK = 64  # a segment longer than this is a prompt chunk, computed in one piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rows [start, stop) of the flat pass belong to cache sequence `seq`, and see its first `base` rows."""

    seq: int
    start: int
    stop: int
    base: int  # contiguous cache rows below; more than the committed ones when a drafter stacks passes
    parents: tuple[int, ...] | None = None  # among the segment's rows, -1: sees only the base; None: a chain
    mask: Tensor | None = None  # [n, n] bool, which row sees which; instead of the ancestors
    exact_rows: int | None = None  # the first so many rows must be row-exact, probes after that need not; None: all
    bulk: int | None = None  # the first so many rows are a prompt chunk, exact as a whole; None: all if over 64

    @property
    def num_rows(self) -> int:
        return self.stop - self.start

    @property
    def num_bulk(self) -> int:
        """How many first rows are computed in one piece: 0, or more than 64."""
        wanted = self.num_rows if self.bulk is None else self.bulk
        return wanted if wanted > BULK else 0

    @property
    def is_chain(self) -> bool:
        """Every row sees all rows before it."""
        return self.parents is None and self.mask is None

    def depths(self) -> list[int]:
        """Rows between each row and the base."""
        if self.parents is None:
            return list(range(self.num_rows))
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return depths

    def paths(self, first: int, stop: int) -> list[tuple[int, ...]]:
        """The rows that each of the rows first..stop sees, itself last."""
        if self.mask is not None:
            return [tuple(torch.nonzero(self.mask[i])[:, 0].tolist()) for i in range(first, stop)]
        if self.parents is None:
            return [tuple(range(i + 1)) for i in range(first, stop)]
        paths: list[tuple[int, ...]] = []
        for i, parent in enumerate(self.parents[:stop]):
            paths.append((*paths[parent], i) if parent >= 0 else (i,))
        return paths[first:]

    def visible(self) -> Tensor:
        """Which row sees which: [n, n] bool, on the host."""
        n = self.num_rows
        if self.mask is not None:
            return self.mask.cpu()
        if self.parents is None:
            return torch.ones(n, n, dtype=torch.bool).tril()
        seen = torch.eye(n, dtype=torch.bool)
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                seen[i] |= seen[parent]
        return seen


def chain_segments(seqs: Sequence[int], counts: Sequence[int], bases: Sequence[int]) -> list[Segment]:
    """`counts[i]` rows of cache sequence `seqs[i]` behind its first `bases[i]`, sequence after sequence in the pass."""
    return [
        Segment(seq=seq, start=stop - count, stop=stop, base=base)
        for seq, count, stop, base in zip(seqs, counts, accumulate(counts), bases, strict=True)
    ]
