"""The network's key/value cache of each text: a row for every pair (target feature at i, token at i + 1), at position
i.

    text       x0  x1  x2  x3(pending)          committed by the target: features f0 f1 f2
    pairs      (f0,x1) (f1,x2) (f2,x3)          the last pair's output g2 stands in for f3 and predicts x4
    drafting                           (g2,t1) (g3,t2) ...   tentative rows, dropped after the guess

Li et al., "EAGLE: speculative sampling requires rethinking feature uncertainty", 2024, https://arxiv.org/abs/2401.15077.
Data in: what a pass showed, then draft tokens; data out: the network's outputs [D].
"""

from collections.abc import Sequence as Seq
from itertools import accumulate

import torch
from torch import Tensor

from outdraft.drafters.shared.chains.network import ChainNetwork, LeastProbs
from outdraft.drafters.shared.features.network import FeatureNet
from outdraft.drafters.shared.learning.vocab import whole_logits
from outdraft.drafters.shared.networks.paired_text import PairedTexts, Waiting
from outdraft.drafters.shared.trees.tree import Tree
from outdraft.kernels.decoder.chains import Chains, Draw
from outdraft.models.networks.guess import NativeGuesser
from outdraft.models.networks.port import TargetPort
from outdraft.nn.context import AttentionContext


class Pairs(PairedTexts):
    """A network and the pairs of each sequence. New pairs wait until a guess is wanted, and are then read together.

    `native`: the same network on the kernels, which then does all the work; it feeds its outputs on as they are.
    """

    def __init__(self, net: FeatureNet, port: TargetPort, *, native: NativeGuesser | None = None) -> None:
        super().__init__(port, net.shape, max_len=net.shape.unshifted_len)
        self.net, self._native = net, native

    def read_waiting(self, seqs: Seq[int]) -> tuple[Tensor, Tensor]:
        """Read the pairs that wait, in one ragged pass: outputs [B, D] of each text's last pair, logits [B, V]."""
        waiting = self._waiting(seqs)
        last = [stop - 1 for stop in accumulate(waiting.counts)]
        context = self.cache.extend(seqs, waiting.counts)
        found = self._run(waiting.tokens, waiting.places, context, last, taps=waiting.taps)
        self._have_read(seqs)
        return found

    @property
    def runs_chains(self) -> bool:
        """Whether the kernels draft a whole chain in one call."""
        return self._native is not None

    def chain_network(self, seqs: Seq[int]) -> ChainNetwork:
        """The rows of a round, one for each text; the pairs that wait are read with the first step."""
        outputs = torch.empty(0)  # [n, D] of the rows fed last
        fed: list[int] = []

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            nonlocal outputs, fed
            own = [seqs[i] for i in rows]
            if step == 0:
                outputs, logits = self.read_waiting(own)
            else:
                before = outputs if rows == fed else outputs[[fed.index(i) for i in rows]]
                outputs, logits = self.guess(own, tokens, before, step)
            fed = rows
            return logits

        def chain(rows: list[int], depths: list[int], draws: list[Draw | None], cutoffs: LeastProbs | None) -> Chains:
            assert self._native is not None
            own = [seqs[i] for i in rows]
            waiting = self._waiting(own)
            context = self.cache.extend(own, waiting.counts)
            self.cache.extend(own, [depth - 1 for depth in depths])  # room for the steps
            found = self._native.chain(
                waiting.tokens, waiting.places, context, depths, draws, taps=waiting.taps, cutoffs=cutoffs
            )
            self._have_read(own)
            return found

        return ChainNetwork(feed=feed, chain=chain if self.runs_chains else None, states=lambda: outputs)

    def guess(self, seqs: Seq[int], tokens: list[int], before: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Feed one more token of each chain with the output [n, D] before it: outputs [n, D], logits [n, V]."""
        places = [self.texts[seq].end - 1 + step for seq in seqs]
        context = self.cache.extend(seqs, [1] * len(seqs))
        return self._run(tokens, places, context, range(len(tokens)), before=before)

    def branch(self, trees: Seq[Tree], before: Tensor) -> tuple[Tensor, Tensor]:
        """Feed the frontier of each tree with its parents' outputs [n, D]: outputs and logits, tree after tree."""
        tokens = [tree.tokens[node] for tree in trees for node in tree.frontier]
        places = [self.texts[tree.seq.id].end - 1 + tree.depths[node] for tree in trees for node in tree.frontier]
        context = self.cache.branch([tree.seq.id for tree in trees], [tree.rows_above() for tree in trees])
        return self._run(tokens, places, context, range(len(tokens)), before=before)

    def drop_guess(self, seq: int) -> None:
        """Forget the drafted rows: their features are the network's own, true ones will come."""
        self.cache.keep(seq, ())

    def _waiting(self, seqs: Seq[int]) -> Waiting:
        for seq in seqs:
            text = self.texts[seq]
            if not text.tokens and text.last is not None:  # asked twice for one text: the last pair is read again
                text.tokens, text.features = [text.ids.pop()], [text.last]
                self.cache.truncate(seq, text.num_read)
        return self.waiting(seqs, self.net.taps)

    def _have_read(self, seqs: Seq[int]) -> None:
        texts = [self.texts[seq] for seq in seqs]
        self.have_read(seqs, [{tap: rows[-1:] for tap, rows in text.features[0].items()} for text in texts])

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
        net, facts = self.net, self.port.facts
        positions = torch.tensor(places, device=facts.device)
        ids = torch.tensor(tokens, device=facts.device)
        features = net.fuse(taps) if before is None else net.carry(before)
        embeds = (net.embed or self.port.layers.embed)(ids, positions + 1)
        outputs = net.run(embeds, features, positions, context)
        outputs = outputs if len(wanted) == len(tokens) else outputs[list(wanted)]
        return outputs, whole_logits(net.logits(outputs), net.vocab, facts.vocab_size)
