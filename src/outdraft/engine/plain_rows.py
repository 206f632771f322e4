"""Track up to which row each sequence's cache equals plain decoding's bit for bit, and recompute the rest (`replay`).

    cache   [ p p p p g g | d d d d ]     p, g: prompt chunks, and rows computed alone: plain decoding's own
                            plain         d: rows that shared a pass; everything after them reads them

A target whose rows do not depend on the pass never drifts, and has no use for this. `replay` forgets the drifted rows
and the tentative ones, and computes the text from `plain` on again, one row at a time.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.core.cache import KVCache
from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.target import Replay


class PlainRows:
    """Counts of rows by sequence, beside the runner's cache.

    `decode`: plain decoding's pass of one row, of this token at this place of the sequence; gives logits [1, V].
    `chains`: the rows of a chain have its bits too, and so have decoding rows beside others.
    """

    def __init__(self, cache: KVCache, decode: Callable[[Sequence, int, int], Tensor], *, chains: bool = False) -> None:
        self.cache = cache
        self.chains = chains
        self._decode = decode
        self._plain: dict[int, int] = {}  # sequence -> first rows of its cache that are plain decoding's
        self._plain_pass: dict[int, bool] = {}  # sequence -> its last pass had plain decoding's shape
        self._starts: dict[int, int] = {}  # sequences replayed since the last pass -> rows cached before it

    def begin(self, seq: Sequence, num_there: int = 0) -> None:
        """A new sequence, whose first rows are there already, as plain decoding reads a prompt."""
        self._plain[seq.id] = num_there

    def end(self, seq: Sequence) -> None:
        del self._plain[seq.id]
        self._plain_pass.pop(seq.id, None)
        self._starts.pop(seq.id, None)

    def drifted(self, packed: PackedDrafts) -> frozenset[int]:
        """Which sequences of this new pass cannot have plain decoding's bits."""
        for seq in packed.seqs:
            if (start := self._starts.pop(seq.id, None)) is not None:  # the last round came to nothing
                self.cache.truncate(seq.id, start)
                self._plain[seq.id] = start
        self._plain_pass.update((seq.id, self._is_plain_pass(packed, i)) for i, seq in enumerate(packed.seqs))
        return frozenset(
            i
            for i, seq in enumerate(packed.seqs)
            if not self._plain_pass[seq.id] or self._plain[seq.id] < self.cache.length(seq.id)
        )

    def _is_plain_pass(self, packed: PackedDrafts, i: int) -> bool:
        """Whether sequence i's rows get the bits of plain decoding's own pass."""
        draft, tree = packed.drafts[i], packed.trees[i]
        if len(packed.seqs) > 1 and not (self.chains and len(packed.nodes) == packed.row_starts[-1]):
            return False
        if draft is None or tree is None:
            return True
        is_plain = self.chains and tree.parents == list(range(-1, draft.num_nodes - 1)) and draft.mask is None
        return draft.resume is None and (draft.num_nodes == 1 or is_plain)

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        """Keep these rows of the last pass, or of the path that was replayed."""
        start = self._starts.pop(seq.id, None)
        if start is not None:
            self.cache.truncate(seq.id, start + len(keep))
            self._plain[seq.id] = start + len(keep)
            return
        length = self.cache.length(seq.id)
        # Behind the prompt plain decoding wrote row by row; a text that is read again is read in chunks there too.
        as_plain = self.chains or len(keep) == 1 or length + len(keep) <= seq.prompt_len
        if self._plain_pass[seq.id] and as_plain and self._plain[seq.id] == length:
            self._plain[seq.id] += len(keep)
        self.cache.commit(seq.id, keep)

    def replay(self, packed: PackedDrafts, i: int, node: int) -> Replay:
        seq, tree = packed.seqs[i], packed.trees[i]
        assert tree is not None
        self._starts.setdefault(seq.id, self.cache.length(seq.id))
        first = self._plain[seq.id]
        self.cache.truncate(seq.id, first)
        tokens = [*seq.tokens, *(tree.tokens[v] for v in tree.path(node))][first:]
        self._plain[seq.id] = first + len(tokens)
        for at, token in enumerate(tokens, first):
            self.cache.reserve(seq.id, 1)
            logits = self._decode(seq, token, at)
            self.cache.commit(seq.id, [0])
        return Replay(logits=logits[0], num_rows=len(tokens))
