"""Rows that a text takes over from an earlier one with the same beginning, where the cache keeps pages for that.

    rows do not depend on their pass    whole pages of any committed text, answers too
    rows depend on it                   whole chunks of a prompt, which were read as a prompt is always read

A row is a function of the tokens up to it and of a *salt*: what the request named, and the position that the model is
given for its first token. Prompts of vectors, or with positions of their own, share nothing.
"""

from outdraft.cache.paged import PagedCache
from outdraft.core.cache import PAGE
from outdraft.core.sequence import CHUNK, Sequence
from outdraft.core.target import Needs

_MOST_PAIRS = 4096  # of texts that are remembered


class SharedRows:
    """`whole_texts`: rows do not depend on their pass.

    `unit`: how many rows are taken over together. `worth`: so many are waited for, fewer are sooner read. `needs`: what
    the drafter wants to hear of the passes. Of rows that are taken over it hears nothing, so one that reads states gets
    those of the last page before the pending token, and one that reads whole prompts gets whole prompts.
    """

    def __init__(self, cache: PagedCache, *, whole_texts: bool) -> None:
        self.cache = cache
        self._whole_texts = whole_texts
        self.unit = PAGE if whole_texts else CHUNK
        self.worth = 4 * PAGE
        self.needs = Needs()
        self._common: dict[tuple[int, int], int] = {}  # (waiting, reading) -> tokens that both begin with

    def adopt(self, seq: Sequence) -> int:
        """Let a sequence that has no rows yet begin with those that are there; returns how many."""
        if not self._shares(seq):
            return 0
        found = self.cache.adopt(seq.id, _salt(seq), seq.tokens[: self._most(seq)])
        usable = found // self.unit * self.unit
        if usable < found:
            self.cache.truncate(seq.id, usable)
        return usable

    def publish(self, seq: Sequence) -> None:
        """Leave the sequence's committed rows to later texts."""
        if not self._shares(seq):
            return
        stop = self._last(seq, self.cache.length(seq.id))
        if stop // PAGE > self.cache.num_published(seq.id):
            self.cache.publish(seq.id, _salt(seq), seq.tokens[:stop])

    def num_in_use(self, seq: Sequence) -> int:
        """Pages of running texts that a waiting one would take over."""
        if not self._shares(seq):
            return 0
        return self.cache.num_in_use(_salt(seq), seq.tokens[: self._most(seq)])

    def awaits(self, seq: Sequence, reader: Sequence) -> bool:
        """Whether a running text is about to read so much of a waiting one's beginning that it had better wait.

        Only what comes next is looked at: where the texts part, and where the reader is done, no text waits.
        """
        if seq.scores_prompt:
            return False
        stop = reader.num_cached // self.unit * self.unit + max(self.unit, self.worth)
        most = min(self._most(seq), self._last(reader, len(reader.tokens) - 1))
        return stop <= most and stop <= self._num_common(seq, reader)

    def _num_common(self, seq: Sequence, reader: Sequence) -> int:
        """How many tokens both begin with, where they may share rows; it is asked in every pass, and found once."""
        if (known := self._common.get((seq.id, reader.id))) is not None:
            return known
        if len(self._common) >= _MOST_PAIRS:
            self._common.clear()
        may = self._shares(seq) and self._shares(reader) and _salt(seq) == _salt(reader)
        found = self._common[seq.id, reader.id] = num_common(seq.tokens, reader.tokens) if may else 0
        return found

    def _shares(self, seq: Sequence) -> bool:
        request = seq.request
        return not self.needs.prompt_taps and request.prompt_embeds is None and request.prompt_positions is None

    def _last(self, seq: Sequence, length: int) -> int:
        """How many of a sequence's first `length` rows later texts may take over."""
        # a chunk that ends right before the pending token may be read beside it, in a pass of another size
        return length if self._whole_texts else min(length, max(0, seq.prompt_len - 2)) // self.unit * self.unit

    def _most(self, seq: Sequence) -> int:
        """The most rows that a text may take over, so that what its drafter reads of states is computed."""
        read_again = PAGE if self.needs.taps else 0
        return max(0, (len(seq.tokens) - 1 - read_again) // self.unit * self.unit)


def num_common(one: list[int], other: list[int]) -> int:
    """How many tokens both texts begin with."""
    if one[:PAGE] != other[:PAGE]:
        return 0  # no text shares less than a page
    least, most = PAGE, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least


def _salt(seq: Sequence) -> tuple[object, ...]:
    return seq.request.cache_salt, seq.first_position
