"""K/V of a drafter's own layers: the rows of the text, and behind them the rows of its last guess.

    [ text: committed rows | guess: tentative rows, in the order they were fed ]
                             0    1    2 ...

After a round the guess rows that the text has confirmed are kept, the rest dropped, and whatever the text has gained
beyond them is fed next: never "the last token", because after full acceptance the drafter lags by more than one.
Data in: which rows a pass adds; data out: the attention context of that pass.
"""

from collections.abc import Hashable
from collections.abc import Sequence as Seq

import torch

from outdraft.cache.config import CacheConfig
from outdraft.cache.paged import PagedCache
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.limits import MAX_NODES
from outdraft.nn.branches import BranchContext, Branches
from outdraft.nn.cached import CachedContext
from outdraft.nn.segment import chain_segments
from outdraft.options.errors import CacheFullError

Salt = tuple[object, ...]


class DraftCache:
    """One text and one guess for each sequence."""

    def __init__(
        self,
        num_layers: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        max_len: int,
        *,
        exact: bool,
        config: CacheConfig | None = None,
    ) -> None:
        # A tree's rows may outnumber its positions: room for both (memory is taken on demand).
        room, config = max_len + MAX_NODES, config or CacheConfig()
        self.rows = config.build(num_layers, num_kv_heads, head_dim, dtype, device, room)
        self._shared = self.rows if config.prefixes and isinstance(self.rows, PagedCache) else None
        self._network = 0 if config.shelf is None else config.shelf.num_networks  # rows of another one are not taken
        self._exact = exact
        self._num_guessed: dict[int, int] = {}

    def add(self, seq: int) -> None:
        self.rows.add(seq)
        self._num_guessed[seq] = 0

    def add_pairs(self, seq: Sequence) -> tuple[Salt, list[int]]:
        """Add a text whose row i goes with token i + 1, and take over the rows that an earlier one left.

        Only rows that the target has too are taken. Returns the salt under which the text is to be published, and the
        tokens of the rows taken. The first token is in the salt, since it goes with no row.
        """
        salt = (seq.request.cache_salt, seq.first_position, seq.tokens[0])
        following = seq.tokens[1 : seq.num_cached + 1]
        self.add(seq.id)
        return salt, following[: self.adopt(seq.id, salt, following)]

    def adopt(self, seq: int, salt: Hashable, tokens: Seq[int]) -> int:
        """Begin an empty text with the rows that an earlier one of this beginning left; returns how many.

        `tokens`: one for each row, which with those before it decides the row.
        """
        return 0 if self._shared is None else self._shared.adopt(seq, (self._network, salt), tokens)

    def publish(self, seq: int, salt: Hashable, tokens: Seq[int]) -> None:
        """Leave the text's rows, which these tokens decide, to later texts."""
        if self._shared is not None:
            self._shared.publish(seq, (self._network, salt), tokens)

    def free(self, seq: int) -> None:
        """Forget the text and the guess."""
        self.rows.free(seq)
        del self._num_guessed[seq]

    def extend(self, seqs: Seq[int], counts: Seq[int]) -> CachedContext:
        """A pass of `counts[i]` rows that continue sequence i, each seeing all before it.

        Raises `CacheFullError` where there is no room for all of them; then all of these guesses are forgotten.
        """
        bases = self.grow_all(seqs, counts)
        return CachedContext(self.rows, chain_segments(seqs, counts, bases), self._exact)

    def branch(self, seqs: Seq[int], sees: Seq[list[list[int]]]) -> BranchContext:
        """A pass of tree rows: `sees[i][j]` are the guess rows that row j of sequence i sees, topmost first.

        Raises `CacheFullError` as `extend` does.
        """
        parts, start = [], 0
        for seq, above, base in zip(seqs, sees, self.grow_all(seqs, [len(above) for above in sees]), strict=True):
            parts.append(Branches(seq=seq, start=start, text=self.rows.length(seq), first=base, above=above))
            start += len(above)
        return BranchContext(self.rows, parts)

    def grow_all(self, seqs: Seq[int], counts: Seq[int]) -> list[int]:
        """`grow` for each. Raises `CacheFullError`, and leaves what there is of room to others, as `extend` does."""
        try:
            return [self.grow(seq, count) for seq, count in zip(seqs, counts, strict=True)]
        except CacheFullError:
            for seq in seqs:
                self.keep(seq, ())
            raise

    def keep(self, seq: int, rows: Seq[int]) -> None:
        """These guess rows, in this order, have become text; the others are dropped."""
        self.rows.commit(seq, rows)
        self._num_guessed[seq] = 0

    def truncate(self, seq: int, length: int) -> int:
        """Forget the guess, and the text from row `length` on; returns how many tokens of the text are left."""
        self.rows.truncate(seq, length)
        self._num_guessed[seq] = 0
        return length

    def grow(self, seq: int, count: int) -> int:
        """Room for `count` more rows; returns the slot of the first. Raises `CacheFullError` with nothing changed."""
        guessed = self._num_guessed[seq]
        self.rows.reserve(seq, guessed + count)
        self._num_guessed[seq] = guessed + count
        return self.rows.length(seq) + guessed
