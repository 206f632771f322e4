"""The draft model on a GPU: a whole greedy chain is one recorded pass, and its tokens stay on the device.

    host    what each text has gained, and where every row of the k steps will stand    -> one copy to the device
    device  k passes, each arg-max the next step's token                                -> tokens [k + 1, B]

Nothing comes back before the target has judged the guess (Leviathan, Kalman and Matias, "Fast inference from
transformers via speculative decoding", 2022, https://arxiv.org/abs/2211.17192). NaN in the draft's logits is not looked
for here: such a guess is merely wrong.
"""

from collections.abc import Sequence as Seq

from outdraft.cache.paged import PagedCache
from outdraft.core.draft import Draft, chain
from outdraft.core.sequence import Sequence
from outdraft.core.target import Recorder
from outdraft.drafters.shared.draft_model import DraftModel
from outdraft.models.base import Decoder
from outdraft.models.static import StaticDecoder
from outdraft.nn.attention.chain import ChainRows
from outdraft.nn.attention.rows import NewRows, chain_bits

_FEW = 4  # rows of one sequence in a recorded pass; a longer gain is read first
_UNKNOWN = (-2, -1)  # a guess row whose token the host does not know: no text confirms it


class StaticDraftModel(DraftModel):
    """`DraftModel` over pages, with chains that the host does not step through."""

    def __init__(self, decoder: Decoder, record: Recorder) -> None:
        super().__init__(decoder, layout="paged")
        assert isinstance(self._cache.rows, PagedCache)
        self._pool = self._cache.rows
        self.static = StaticDecoder(decoder, self._pool, record)

    def chains(self, seqs: Seq[Sequence], depths: Seq[int]) -> list[Draft]:
        """A chain of `depths[i]` tokens for each sequence; depth 0 is the pending token alone."""
        drafts = [chain([seq.pending]) for seq in seqs]
        wanted = [i for i, depth in enumerate(depths) if depth > 0]
        if not wanted:
            return drafts
        todo = self._unread([seqs[i] for i in wanted])
        parts = [self._place(seqs[i].id, new, depths[i]) for i, new in zip(wanted, todo, strict=True)]
        # A copy: the static memory is the next chain's.
        tokens = self.static.chain(parts, max(depths)).clone()  # [1 + k, B]
        for column, i in enumerate(wanted):
            drafts[i] = chain(tokens[: 1 + depths[i], column])
        return drafts

    def confirm(self, seq: Sequence, num_accepted: int) -> None:
        """So many tokens of the sequence's last guess have become text: their rows may be kept."""
        text = self._texts[seq.id]
        for row in range(min(num_accepted, len(text.guess))):
            at = len(text.ids) + row
            if text.guess[row] == _UNKNOWN and at < len(seq.tokens):
                text.guess[row] = (row - 1, seq.tokens[at])
        del text.guess[num_accepted:]  # told once: what another drafter guesses next is not this memory's

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
        rows = NewRows(
            ids=new, positions=range(base, base + len(new)), base=base, sees=chain_bits(len(new)),
            pages=self._pool.pages(seq),
        )  # fmt: skip
        return ChainRows(new=rows, depth=depth)
