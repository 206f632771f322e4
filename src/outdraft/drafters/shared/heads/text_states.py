"""For heads with decoder layers of their own below them: those layers' cache and outputs for each text.

    text    x0 x1 x2 x3(pending)          the target's states  h0 h1 h2
    rows    (h0,x1) (h1,x2) (h2,x3)       each once through the stem, in order; heads read the last row's output

Rows wait until a guess is wanted, and are then read together. Data in: what a pass showed; data out: one state [D] a
sequence. A sequence whose prompt is not read has none.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from contextlib import suppress
from itertools import accumulate

import torch
from torch import Tensor

from outdraft.core.drafter import Seen
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.heads.stem import Stem, StemConfig
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.drafters.shared.networks.paired_text import PairedText, Salt
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import CacheFullError

_MAX_WAITING = 512  # rows that may wait: bounds the memory of hidden states while a prompt is read


class _Text(PairedText):
    """The rows of one sequence, the states of those that are still to be read, and the last output."""

    __slots__ = ("output", "states")

    def __init__(self, first: int, salt: Salt | None = None) -> None:
        super().__init__(first, salt)
        self.states: list[Tensor] = []  # of the rows that wait, [n, D] a pass
        self.output: Tensor | None = None  # [D] of the last row read


class TextStates:
    """By sequence. Prepares the stem for inference. `norm`: what is done to states [n, D] before it reads them;
    `finish`: to the outputs [n, D] that heads read, once for each."""

    def __init__(
        self,
        stem: Stem,
        config: StemConfig,
        norm: Callable[[Tensor], Tensor],
        port: TargetPort,
        finish: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        facts = port.facts
        stem.exact = True
        self._stem, self._tap, self._norm, self._port, self._finish = stem, config.tap, norm, port, finish
        self._cache = DraftCache(
            config.num_stem_layers, config.stem_kv_heads, config.stem_head_dim, facts.dtype, facts.device,
            facts.max_len, exact=True, config=port.cache,
        )  # fmt: skip
        self._texts: dict[int, _Text] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        return not self._texts

    def begin(self, seqs: Seq[Sequence]) -> None:
        """A memory for each, empty but for what an earlier text of the same beginning left."""
        for seq in seqs:
            salt, ids = self._cache.add_pairs(seq)
            text = self._texts[seq.id] = _Text(0, salt)
            text.ids = ids

    def learn(self, one: Seen) -> None:
        """The committed rows, and the tokens that follow them."""
        seq, text = one.seq, self._texts[one.seq.id]
        if text.end != one.start:  # rows were committed unseen (a shared prefix): start afresh behind the gap
            self._cache.truncate(seq.id, 0)
            text = self._texts[seq.id] = _Text(one.start)
        text.tokens += seq.tokens[one.start + 1 : one.start + one.num_committed + 1]
        text.states.append(one.hidden[self._tap])
        if len(text.tokens) >= _MAX_WAITING:
            with suppress(CacheFullError):  # they wait on: later there is room again
                self._read([seq.id])

    def knows(self, seq: Sequence) -> bool:
        """Whether the rows reach up to the pending token."""
        text = self._texts.get(seq.id)
        reaches = text is not None and text.end == len(seq.tokens) - 1
        return text is not None and reaches and (bool(text.tokens) or text.output is not None)

    def of(self, seqs: Seq[Sequence]) -> Tensor:
        """What the heads read, one a sequence: [n, D], or what `finish` made of it."""
        waiting = [i for i in dict.fromkeys(seq.id for seq in seqs) if self._texts[i].tokens]
        if waiting:
            self._read(waiting)
        found = [self._texts[seq.id].output for seq in seqs]
        return torch.stack([one for one in found if one is not None])

    def forget(self, seqs: Seq[Sequence]) -> None:
        """Drop what is known of these texts, and free their rows of the stem's cache."""
        for seq in seqs:
            if self._texts.pop(seq.id, None) is not None:
                self._cache.free(seq.id)

    def _read(self, seqs: Seq[int]) -> None:
        """All rows that wait, in one ragged pass."""
        texts, device = [self._texts[seq] for seq in seqs], self._port.facts.device
        counts = [len(text.tokens) for text in texts]
        places = [place for text in texts for place in text.waiting]
        positions = torch.tensor(places, device=device)
        embeds = None
        if self._stem.reads_tokens:
            ids = torch.tensor([token for text in texts for token in text.tokens], device=device)
            embeds = self._port.layers.embed(ids, positions + 1)
        states = torch.cat([part for text in texts for part in text.states])
        outputs = self._stem(self._norm(states), embeds, positions, self._cache.extend(seqs, counts))
        outputs = outputs[[stop - 1 for stop in accumulate(counts)]]  # [B, D]
        outputs = outputs if self._finish is None else self._finish(outputs)
        for seq, text, output in zip(seqs, texts, outputs, strict=True):
            self._cache.keep(seq, range(len(text.tokens)))
            text.ids += text.tokens
            text.output, text.tokens, text.states = output, [], []
            if text.salt is not None:
                self._cache.publish(seq, text.salt, text.ids)
