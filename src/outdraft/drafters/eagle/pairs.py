"""The network's memory of each text: a row for every pair (target feature at i, token at i + 1), at position i.

    text       x0  x1  x2  x3(pending)          committed by the target: features f0 f1 f2
    pairs      (f0,x1) (f1,x2) (f2,x3)          the last pair's output g2 stands in for f3 and predicts x4
    drafting                           (g2,t1) (g3,t2) ...   tentative rows, dropped after the guess

Li et al., "EAGLE: speculative sampling requires rethinking feature uncertainty", 2024, https://arxiv.org/abs/2401.15077.
Data in: what a pass showed, then draft tokens; data out: the network's outputs [D].
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.drafter import Seen
from outdraft.core.sequence import Sequence
from outdraft.core.target import TargetPort
from outdraft.drafters.eagle.net import EagleNet
from outdraft.drafters.shared.draft_cache import DraftCache
from outdraft.drafters.shared.growth import Tree
from outdraft.nn.context import AttentionContext

_MAX_WAITING = 512  # pairs that may wait for the next guess: bounds the memory of hidden states while a prompt is read


class _Text:
    """What is known of one sequence."""

    __slots__ = ("features", "first", "last", "num_read", "tokens")

    def __init__(self, first: int) -> None:
        self.first = first  # position of the first pair
        self.num_read = 0  # pairs in the cache
        self.tokens: list[int] = []  # of the pairs that wait
        self.features: list[Mapping[int, Tensor]] = []  # of the pairs that wait: tap -> [n, D]
        self.last: Tensor | None = None  # [D] output of the last pair read

    @property
    def end(self) -> int:
        """Position after the last pair known."""
        return self.first + self.num_read + len(self.tokens)


class Pairs:
    """A network and the pairs of each sequence. New pairs wait until a guess is wanted, and are then read together."""

    def __init__(self, net: EagleNet, port: TargetPort, *, max_len: int) -> None:
        config = net.config
        self.net = net
        self._port = port
        self._cache = DraftCache(
            config.num_layers, config.num_kv_heads, config.head_dim, port.dtype, port.device, max_len, exact=True
        )
        self._texts: dict[int, _Text] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        return not self._texts

    def add(self, seq: int) -> None:
        """A new text."""
        self._texts[seq] = _Text(0)
        self._cache.add(seq)

    def free(self, seq: int) -> None:
        """Forget the text."""
        if self._texts.pop(seq, None) is not None:
            self._cache.free(seq)

    def knows(self, seq: Sequence) -> bool:
        """Whether the pairs reach up to the pending token (a prompt of one token has none)."""
        text = self._texts[seq.id]
        return text.end == len(seq.tokens) - 1 and text.end > text.first

    def learn(self, one: Seen) -> None:
        """True features of committed rows, and the tokens that follow them."""
        seq, text = one.seq, self._texts[one.seq.id]
        if text.end != one.start:  # rows were committed unseen (a shared prefix): start afresh behind the gap
            self.free(seq.id)
            self.add(seq.id)
            text = self._texts[seq.id]
            text.first = one.start
        text.tokens += seq.tokens[one.start + 1 : one.start + one.num_committed + 1]
        text.features.append(one.hidden)
        if len(text.tokens) >= _MAX_WAITING:
            self.read([seq.id])

    def read(self, seqs: Seq[int]) -> Tensor:
        """Read the pairs that wait, in one ragged pass: outputs [B, D] of each text's last pair."""
        fresh = [seq for seq in seqs if self._texts[seq].tokens]
        if fresh:
            self._read(fresh)
        return torch.stack([output for seq in seqs if (output := self._texts[seq].last) is not None])

    def _read(self, seqs: Seq[int]) -> None:
        texts = [self._texts[seq] for seq in seqs]
        taps = self.net.config.taps
        features = self.net.fuse([torch.cat([f[tap] for text in texts for f in text.features]) for tap in taps])
        counts = [len(text.tokens) for text in texts]
        places = [text.first + text.num_read + i for text in texts for i in range(len(text.tokens))]
        tokens = [token for text in texts for token in text.tokens]
        outputs = self._run(tokens, features, places, self._cache.extend(seqs, counts))
        row = 0
        for seq, text, count in zip(seqs, texts, counts, strict=True):
            row += count
            self._cache.keep(seq, range(count))
            text.last = outputs[row - 1]
            text.num_read += count
            text.tokens, text.features = [], []

    def guess(self, seqs: Seq[int], tokens: list[int], features: Tensor, step: int) -> Tensor:
        """Feed one more token of each chain with the output [n, D] before it: outputs [n, D]."""
        places = [self._texts[seq].end - 1 + step for seq in seqs]
        return self._run(tokens, features, places, self._cache.extend(seqs, [1] * len(seqs)))

    def branch(self, trees: Seq[Tree], features: Tensor) -> Tensor:
        """Feed the frontier of each tree with its parents' outputs [n, D]: outputs [n, D], tree after tree."""
        tokens = [tree.tokens[node] for tree in trees for node in tree.frontier]
        places = [self._texts[tree.seq.id].end - 1 + tree.depths[node] for tree in trees for node in tree.frontier]
        context = self._cache.branch([tree.seq.id for tree in trees], [tree.rows_above() for tree in trees])
        return self._run(tokens, features, places, context)

    def drop_guess(self, seq: int) -> None:
        """Forget the drafted rows: their features are the network's own, true ones will come."""
        self._cache.keep(seq, ())

    def _run(self, tokens: list[int], features: Tensor, places: list[int], context: AttentionContext) -> Tensor:
        positions = torch.tensor(places, device=self._port.device)
        ids = torch.tensor(tokens, device=self._port.device)
        return self.net.run(self._port.embed(ids, positions + 1), features, positions, context)
