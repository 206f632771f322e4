"""A table target whose rows depend on the pass: what the guard (`decode/guard.py`) is there for, without a network.

A row computed alone, over rows that were computed alone, has the table's logits. Any other row is off by noise of its
own: no logit moves by more than half of `drift`, so no difference of two by more than `drift`. The noise depends on the
number of rows in the pass and on which cached rows are off, as rounding does in a matrix library.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any

from torch import Tensor

from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.target import Replay, TargetOutput
from outdraft.sampling.noise import fold, uniforms
from tests.helpers.table_target import TableTarget


class DriftingTarget(TableTarget):
    """`coarse`: the table's logits are rounded to this step, which plants ties. Other options: `TableTarget`'s.

    `forgets`: a fault to test with: a replay computes the last row again, but over the rows that are off.
    """

    def __init__(self, *, drift: float, coarse: float, forgets: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.table = (self.table / coarse).round() * coarse
        self.drift = drift
        self.forgets = forgets
        self.off: dict[int, list[bool]] = {}  # sequence -> which cached rows are off
        self._alone = True
        self._replayed: dict[int, int] = {}  # sequence -> tokens whose rows a replay has computed since the last pass

    def begin(self, seq: Sequence) -> int:
        self.off[seq.id] = []
        return super().begin(seq)

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """The table's logits [M, V], and noise where the pass is not plain decoding's."""
        out = super().forward(packed, taps)
        for seq in packed.seqs:
            self._replayed.pop(seq.id, None)
        self._alone = len(packed.seqs) == 1 and packed.node_starts[-1] <= 1
        drifted = {i for i, seq in enumerate(packed.seqs) if not self._alone or any(self.off[seq.id])}
        for i in drifted:
            for node in range(packed.node_starts[i], packed.node_starts[i + 1]):
                out.logits[node] += self._noise(packed.seqs[i], node, len(packed.tokens))
        return replace(out, drifted=frozenset(drifted))

    def replay(self, packed: PackedDrafts, i: int, node: int) -> Replay:
        """The table's own logits; all rows up to the node are computed alone."""
        seq, tree = packed.seqs[i], packed.trees[i]
        assert tree is not None
        path = tree.path(node)
        logits = self.next_logits([*seq.tokens, *(tree.tokens[v] for v in path)])
        off, length = self.off[seq.id], len(seq.tokens) + len(path)
        first = self._replayed.get(seq.id, off.index(True) if True in off else len(off))
        if self.forgets:
            return Replay(logits=logits + self._noise(seq, node, 1), num_rows=1)
        off[:] = [False] * len(off)
        self._replayed[seq.id] = length
        return Replay(logits=logits, num_rows=length - first)

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Keep these rows; those of a pass of many are off, and so is everything that reads them."""
        super().commit(seq, keep)
        fine = seq.id in self._replayed or (self._alone and not any(self.off[seq.id]))
        self._replayed.pop(seq.id, None)
        self.off[seq.id] += [not fine] * len(keep)

    def end(self, seq: Sequence) -> None:
        super().end(seq)
        del self.off[seq.id]

    def _noise(self, seq: Sequence, node: int, num_rows: int) -> Tensor:
        key = fold(len(seq.tokens), node, num_rows, sum(self.off[seq.id]))
        return (uniforms(key, self.vocab_size) - 0.5).to(self.table) * self.drift
