"""The draft model on a GPU: a whole greedy chain is one recorded pass, and its tokens stay on the device.

    host    what each text has gained, and where every row of the k steps will stand    -> one copy to the device
    device  k passes, each arg-max the next step's token                                -> tokens [k + 1, B]

Nothing comes back before the target has judged the guess (Leviathan, Kalman and Matias, "Fast inference from
transformers via speculative decoding", 2022, https://arxiv.org/abs/2211.17192). NaN in the draft's logits is not looked
for here: such a guess is merely wrong.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace

from torch import Tensor

from outdraft.cache.config import CacheConfig
from outdraft.cache.paged import PagedCache
from outdraft.core.sequence import Sequence
from outdraft.core.target import Recorder
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.networks.own_model import DraftModel, Readable
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.fitted import FittedNetwork
from outdraft.models.networks.static import StaticDecoder
from outdraft.nn.attention.chain import ChainRows
from outdraft.nn.attention.rows import NewRows, chain_bits

_FEW = 4  # rows of one sequence in a recorded pass; a longer gain is read first
_UNKNOWN = (-2, -1)  # a guess row whose token the host does not know: no text confirms it


class StaticDraftModel(DraftModel):
    """`DraftModel` over pages, with chains that the host does not step through."""

    rewinds = False  # the host does not know what was guessed

    def __init__(self, decoder: Decoder | FittedNetwork, record: Recorder) -> None:
        super().__init__(decoder, cache=CacheConfig(layout="paged"))
        assert isinstance(self._cache.rows, PagedCache)
        self._pool = self._cache.rows
        self.static = StaticDecoder(decoder, self._pool, record)

    def chain_network(self, texts: Seq[Readable]) -> ChainNetwork:
        """The rows of a round, with a recording of whole chains."""

        def record(rows: list[int], depths: list[int]) -> Tensor:
            own = [texts[i] for i in rows]
            todo = self._unread(own)
            parts = [self._place(text.id, new, depth) for text, new, depth in zip(own, todo, depths, strict=True)]
            return self.static.chain(parts, max(depths)).clone()  # the static memory is the next chain's

        return replace(super().chain_network(texts), record=record)

    def confirm(self, seq: Sequence, num_accepted: int) -> None:
        """So many tokens of the sequence's last guess have become text: their rows may be kept."""
        text = self._texts[seq.id]
        for row in range(min(num_accepted, len(text.guess))):
            at = len(text.ids) + row
            if text.guess[row] == _UNKNOWN and at < len(seq.tokens):
                text.guess[row] = (row - 1, seq.tokens[at])
        del text.guess[num_accepted:]  # confirmed once: what another drafter guesses next is not this memory's

    def _place(self, seq: int, new: list[int], depth: int) -> ChainRows:
        """Slots for what the text has gained, which is text from now on, and for the guess behind it."""
        if len(new) > _FEW:
            self._read([seq], [new[:-1]])
            new = new[-1:]
        text = self._texts[seq]
        base = self._cache.grow(seq, len(new))
        self._cache.keep(seq, range(len(new)))
        text.ids += new
        self._cache.grow(seq, depth - 1)
        text.guess = [_UNKNOWN] * (depth - 1)
        first = text.first + base
        rows = NewRows(
            ids=new,
            positions=range(first, first + len(new)),
            base=base,
            sees=chain_bits(len(new)),
            pages=self._pool.pages(seq),
        )
        return ChainRows(new=rows, depth=depth)
