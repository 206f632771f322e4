"""The network's key/value cache of each text: a row for every pair (target feature at i, token at i + 1), at position
i.

    text       x0  x1  x2  x3(pending)          committed by the target: features f0 f1 f2
    pairs      (f0,x1) (f1,x2) (f2,x3)          the last pair's output g2 stands in for f3 and predicts x4
    drafting                           (g2,t1) (g3,t2) ...   tentative rows, dropped after the guess

A pair stands for its feature and the token after it, so the rows that a text leaves to later ones are found by the
first token and then the *next* tokens, a page at a time.

Li et al., "EAGLE: speculative sampling requires rethinking feature uncertainty", 2024, https://arxiv.org/abs/2401.15077.
Data in: what a pass showed, then draft tokens; data out: the network's outputs [D].
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from outdraft.core.drafter import Seen
from outdraft.core.rows_of import joined, kept
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.network import ChainNetwork, LeastProbs
from outdraft.drafters.shared.features.network import FeatureNet, whole_logits
from outdraft.drafters.shared.networks.draft_cache import DraftCache
from outdraft.drafters.shared.networks.paired_text import PairedText, Salt
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.kernels.decoder.guesser import Chains, Draw
from outdraft.models.networks.port import TargetPort
from outdraft.models.target.guess import NativeGuesser
from outdraft.nn.context import AttentionContext
from outdraft.options.errors import CacheFullError

_MAX_WAITING = 512  # pairs that may wait for the next guess: bounds the memory of hidden states while a prompt is read
_MAX_PASSES = 64  # that a text may keep whole, before it copies its own rows of them


class _Text(PairedText):
    """The pairs of one sequence, and the features of those that are still to be read."""

    __slots__ = ("features", "last")

    def __init__(self, first: int, salt: Salt | None = None) -> None:
        super().__init__(first, salt)
        self.features: list[Mapping[int, Tensor]] = []  # of the pairs that wait, pass after pass: tap -> [n, D]
        self.last: Mapping[int, Tensor] | None = None  # features of the last pair read: tap -> [1, D]

    def hear(self, features: Mapping[int, Tensor]) -> None:
        """Features of one more pass. They are copied when they are read, or when too many wait."""
        self.features.append(kept(features))
        if len(self.features) > _MAX_PASSES:
            self.features = [joined(self.features)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """The pairs of some texts that are to be read, text after text."""

    tokens: list[int]
    places: list[int]
    counts: list[int]  # of each text
    taps: list[Tensor]  # [n, D] each


class Pairs:
    """A network and the pairs of each sequence. New pairs wait until a guess is wanted, and are then read together.

    `native`: the same network on the kernels, which then does all the work; it feeds its outputs on as they are.
    """

    def __init__(self, net: FeatureNet, port: TargetPort, *, max_len: int, native: NativeGuesser | None = None) -> None:
        form = net.form
        self.net = net
        self._native = native
        self._port = port
        self._cache = DraftCache(
            form.num_layers,
            form.num_kv_heads,
            form.head_dim,
            port.facts.dtype,
            port.facts.device,
            max_len,
            exact=True,
            config=port.cache,
        )
        self._texts: dict[int, _Text] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no text is left."""
        return not self._texts

    def add(self, seq: Sequence) -> None:
        """A new text. Where the target has taken rows over, their pairs may be there too."""
        salt, ids = self._cache.add_pairs(seq)
        text = self._texts[seq.id] = _Text(0, salt)
        text.ids = ids

    def free(self, seq: int) -> None:
        if self._texts.pop(seq, None) is not None:
            self._cache.free(seq)

    def knows(self, seq: Sequence) -> bool:
        """Whether the pairs reach up to the pending token, and are not all of an earlier text."""
        text = self._texts[seq.id]
        return text.end == len(seq.tokens) - 1 and (bool(text.tokens) or text.last is not None)

    def learn(self, one: Seen) -> None:
        """True features of committed rows, and the tokens that follow them."""
        seq, text = one.seq, self._texts[one.seq.id]
        if text.end != one.start:  # rows were committed unseen (a shared prefix): start afresh behind the gap
            self._cache.truncate(seq.id, 0)
            text = self._texts[seq.id] = _Text(one.start)
        text.tokens += seq.tokens[one.start + 1 : one.start + one.num_committed + 1]
        text.hear(one.hidden)
        if len(text.tokens) >= _MAX_WAITING:
            with suppress(CacheFullError):  # they wait on: later there is room again
                self.read([seq.id])

    def read(self, seqs: Seq[int]) -> tuple[Tensor, Tensor]:
        """Read the pairs that wait, in one ragged pass: outputs [B, D] of each text's last pair, logits [B, V]."""
        waiting = self._waiting(seqs)
        last = [stop - 1 for stop in accumulate(waiting.counts)]
        context = self._cache.extend(seqs, waiting.counts)
        found = self._run(waiting.tokens, waiting.places, context, last, taps=waiting.taps)
        self._have_read(seqs)
        return found

    def chain_network(self, seqs: Seq[int]) -> ChainNetwork:
        """The rows of a round, one for each text."""
        outputs = torch.empty(0)  # [n, D] of the rows fed last
        fed: list[int] = []

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            nonlocal outputs, fed
            own = [seqs[i] for i in rows]
            if step == 0:
                outputs, logits = self.read(own)
            else:
                before = outputs if rows == fed else outputs[[fed.index(i) for i in rows]]
                outputs, logits = self.guess(own, tokens, before, step)
            fed = rows
            return logits

        def chain(rows: list[int], depths: list[int], draws: list[Draw | None], cutoffs: LeastProbs | None) -> Chains:
            return self._chain([seqs[i] for i in rows], depths, draws, cutoffs)

        return ChainNetwork(feed=feed, chain=chain if self._native is not None else None, states=lambda: outputs)

    def _chain(self, seqs: Seq[int], depths: Seq[int], draws: Seq[Draw | None], cutoffs: LeastProbs | None) -> Chains:
        """Read the pairs that wait, and guess, in one native call."""
        assert self._native is not None
        waiting = self._waiting(seqs)
        context = self._cache.extend(seqs, waiting.counts)
        self._cache.extend(seqs, [depth - 1 for depth in depths])  # room for the steps
        found = self._native.chain(
            waiting.tokens, waiting.places, context, depths, draws, taps=waiting.taps, cutoffs=cutoffs
        )
        self._have_read(seqs)
        return found

    def guess(self, seqs: Seq[int], tokens: list[int], before: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Feed one more token of each chain with the output [n, D] before it: outputs [n, D], logits [n, V]."""
        places = [self._texts[seq].end - 1 + step for seq in seqs]
        context = self._cache.extend(seqs, [1] * len(seqs))
        return self._run(tokens, places, context, range(len(tokens)), before=before)

    def branch(self, trees: Seq[Tree], before: Tensor) -> tuple[Tensor, Tensor]:
        """Feed the frontier of each tree with its parents' outputs [n, D]: outputs and logits, tree after tree."""
        tokens = [tree.tokens[node] for tree in trees for node in tree.frontier]
        places = [self._texts[tree.seq.id].end - 1 + tree.depths[node] for tree in trees for node in tree.frontier]
        context = self._cache.branch([tree.seq.id for tree in trees], [tree.rows_above() for tree in trees])
        return self._run(tokens, places, context, range(len(tokens)), before=before)

    def drop_guess(self, seq: int) -> None:
        """Forget the drafted rows: their features are the network's own, true ones will come."""
        self._cache.keep(seq, ())

    def _waiting(self, seqs: Seq[int]) -> _Waiting:
        texts = [self._texts[seq] for seq in seqs]
        for seq, text in zip(seqs, texts, strict=True):
            if not text.tokens and text.last is not None:  # asked twice for one text: the last pair is read again
                text.tokens, text.features = [text.ids.pop()], [text.last]
                self._cache.truncate(seq, text.num_read)
            text.features = [joined(text.features)]
        known = [text.features[0] for text in texts]
        return _Waiting(
            tokens=[token for text in texts for token in text.tokens],
            places=[place for text in texts for place in text.waiting],
            counts=[len(text.tokens) for text in texts],
            taps=[known[0][tap] if len(known) == 1 else torch.cat([f[tap] for f in known])
                  for tap in self.net.form.taps],
        )  # fmt: skip

    def _have_read(self, seqs: Seq[int]) -> None:
        """What waited is text now; guesses behind it are dropped."""
        for seq in seqs:
            text = self._texts[seq]
            self._cache.keep(seq, range(len(text.tokens)))
            text.ids += text.tokens
            text.last = {tap: rows[-1:] for tap, rows in text.features[0].items()}
            text.tokens, text.features = [], []
            if text.salt is not None:
                self._cache.publish(seq, text.salt, text.ids)

    def _run(
        self,
        tokens: list[int],
        places: list[int],
        context: AttentionContext,
        wanted: Seq[int],
        *,
        before: Tensor | None = None,
        taps: Seq[Tensor] = (),
    ) -> tuple[Tensor, Tensor]:
        """Outputs [M, D] and logits [M, V] of the wanted rows, from outputs [N, D] before them, or from taps."""
        if self._native is not None:
            return self._native.feed(tokens, places, context, wanted, features=before, taps=taps)
        net, facts = self.net, self._port.facts
        positions = torch.tensor(places, device=facts.device)
        ids = torch.tensor(tokens, device=facts.device)
        features = net.fuse(taps) if before is None else net.carry(before)
        embeds = (net.embed or self._port.layers.embed)(ids, positions + 1)
        outputs = net.run(embeds, features, positions, context)
        outputs = outputs if len(wanted) == len(tokens) else outputs[list(wanted)]
        return outputs, whole_logits(net.logits(outputs), net.vocab, facts.vocab_size)
