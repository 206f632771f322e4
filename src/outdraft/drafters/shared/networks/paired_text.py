"""Texts of which a drafter reads pairs: row i stands for what the target knew at i, and the token at i + 1.

    text    x0      x1      x2      x3(pending)
    rows    (0,x1)  (1,x2)  (2,x3)          first ... | read: in the draft's cache | wait for the next guess | end

Rows wait until a guess is wanted, and are then read together. The rows that a text leaves to later ones are found by
the first token and then the *next* tokens, a page at a time. A text that outgrows the network's own context is read no
further. Data in: what a pass showed; data out: rows to be read.
"""

import logging
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outdraft.core.drafter import Seen
from outdraft.core.rows_of import joined, kept
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.networks.draft_cache import DraftCache, Salt
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CacheFullError

MAX_WAITING = 512  # rows that may wait for the next guess: bounds the memory of hidden states while a prompt is read
MAX_PASSES = 64  # that a text may keep whole, before it copies its own rows of them
_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PairedText:
    """Which rows of one sequence were read, and which wait."""

    first: int  # position of the first row
    salt: Salt | None = None  # texts of one salt share rows; None: it shares none
    ids: list[int] = field(default_factory=list)  # behind the rows in the cache
    tokens: list[int] = field(default_factory=list)  # behind the rows that wait
    features: list[Mapping[int, Tensor]] = field(default_factory=list)  # of these, pass after pass: tap -> [n, D]
    last: Mapping[int, Tensor] | None = None  # of the last row read, by tap: what the drafter keeps of it

    @property
    def num_read(self) -> int:
        """Rows that the draft's cache holds."""
        return len(self.ids)

    @property
    def end(self) -> int:
        """Position after the last row known."""
        return self.first + self.num_read + len(self.tokens)

    @property
    def waiting(self) -> range:
        """Positions of the rows that wait."""
        return range(self.first + self.num_read, self.end)

    def hear(self, features: Mapping[int, Tensor]) -> None:
        """Features of one more pass. They are copied when they are read, or when too many wait."""
        self.features.append(kept(features))
        if len(self.features) > MAX_PASSES:
            self.features = [joined(self.features)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The rows of some texts that are to be read, text after text."""

    tokens: list[int]
    places: list[int]
    counts: list[int]  # of each text
    taps: list[Tensor]  # [n, D] each


class PairedTexts:
    """The texts of a network, and its key/value cache of their rows. How rows are read, the network's kind says.

    shape: of the layers whose rows are kept. max_len: tokens of the longest text that the network was made for; None:
    of the target's.
    """

    def __init__(self, port: TargetPort, shape: ModelConfig, *, max_len: int | None = None) -> None:
        facts = port.facts
        self.port = port
        self.max_len = min(max_len or facts.max_len, facts.max_len)
        self._has_outgrown = False
        self.texts: dict[int, PairedText] = {}
        sizes = shape.num_layers, shape.num_kv_heads, shape.head_dim
        self.cache = DraftCache(*sizes, facts.dtype, facts.device, self.max_len, exact=True, config=port.cache)

    @property
    def is_empty(self) -> bool:
        return not self.texts

    def begin(self, seqs: Seq[Sequence]) -> None:
        """A memory for each, empty but for what an earlier text of the same beginning left."""
        for seq in seqs:
            self.texts[seq.id] = PairedText(0, *self.cache.add_pairs(seq))

    def forget(self, seqs: Seq[Sequence]) -> None:
        """Drop what is known of these texts, and free their rows."""
        for seq in seqs:
            if self.texts.pop(seq.id, None) is not None:
                self.cache.free(seq.id)

    def knows(self, seq: Sequence) -> bool:
        """Whether the rows reach up to the pending token, and are not all of an earlier text."""
        text = self.texts.get(seq.id)
        if text is None or text.end != len(seq.tokens) - 1:
            return False
        return bool(text.tokens) or text.last is not None

    def room(self, seq: Sequence) -> int:
        """How many tokens may be drafted: the last one fed is the last but one drafted. A block may reach beyond."""
        return max(0, self.max_len + 1 - len(seq.tokens))

    def learn(self, one: Seen) -> None:
        seq, text = one.seq, self.texts[one.seq.id]
        count = max(0, min(one.num_committed, self.max_len - 1 - one.start))  # rows within the network's own context
        outgrows = count < one.num_committed
        if text.end != one.start and not outgrows:  # rows were committed unseen (a shared prefix): start afresh behind
            self.cache.truncate(seq.id, 0)
            text = self.texts[seq.id] = PairedText(one.start)
        if count and text.end == one.start:
            text.tokens += seq.tokens[one.start + 1 : one.start + count + 1]
            text.hear({tap: rows[:count] for tap, rows in one.hidden.items()} if outgrows else one.hidden)
        if text.tokens and (outgrows or len(text.tokens) >= MAX_WAITING):  # other texts may share what is read
            with suppress(CacheFullError):  # they wait on: later there is room again
                self.read_waiting([seq.id])
        if outgrows:
            self._outgrow(text)

    def _outgrow(self, text: PairedText) -> None:
        """Nothing is drafted behind this text any more; one line says so of the first one."""
        text.tokens, text.features = [], []
        if not self._has_outgrown:
            _log.warning(
                "a text has outgrown the draft's own context of %d tokens (max_position_embeddings of its config.json, "
                "or its family's default): such texts go on without drafts, unless a larger number stands there",
                self.max_len,
            )
        self._has_outgrown = True

    def read_waiting(self, seqs: Seq[int]) -> object:
        """Read the rows of these texts that wait, in one ragged pass."""
        raise NotImplementedError  # each subclass says it

    def waiting(self, seqs: Seq[int], taps: Seq[int]) -> Waiting:
        """What is to be read of these texts, each of which has rows that wait."""
        texts = [self.texts[seq] for seq in seqs]
        for text in texts:
            text.features = [joined(text.features)]
        known = [text.features[0] for text in texts]
        return Waiting(
            tokens=[token for text in texts for token in text.tokens],
            places=[place for text in texts for place in text.waiting],
            counts=[len(text.tokens) for text in texts],
            taps=[known[0][tap] if len(known) == 1 else torch.cat([one[tap] for one in known]) for tap in taps],
        )

    def have_read(self, seqs: Seq[int], last: Seq[Mapping[int, Tensor]]) -> None:
        """What waited is text now; guesses behind it are dropped. `last`: what is kept of each text's last row."""
        for seq, one in zip(seqs, last, strict=True):
            text = self.texts[seq]
            self.cache.keep(seq, range(len(text.tokens)))
            text.ids += text.tokens
            text.tokens, text.features, text.last = [], [], one
            if text.salt is not None:
                self.cache.publish(seq, text.salt, text.ids)
