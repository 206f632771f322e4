"""P-EAGLE: EAGLE-3's layers guess several tokens in one pass, by rows that stand for tokens that are not there yet.

"P-EAGLE: parallel-drafting EAGLE with scalable training", 2026, https://arxiv.org/abs/2602.01469.

    text     x0 x1 x2 x3 (pending)            pairs that wait: ... (f2, x3)
    pass     ... (f2, x3) [mask] [mask]       guess x4, x5, x6; the mask rows are dropped with the pass
"""

from collections.abc import Sequence as Seq
from itertools import accumulate

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.drafter import Traits
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.p_eagle.formats import load_p_eagle
from outdraft.drafters.shared.blocks.grow import BlockOptions, grow_marginals
from outdraft.drafters.shared.features.drafter import on_kernels
from outdraft.drafters.shared.features.fused.net import FusedNet
from outdraft.drafters.shared.features.pairs import Pairs
from outdraft.drafters.shared.state_drafter import StateDrafter, chosen_model
from outdraft.models.networks.guess import NativeGuesser
from outdraft.models.networks.port import TargetPort
from outdraft.weights.pickled import PICKLED


class MaskedPairs(Pairs):
    """The pairs of each text, and mask rows that stand behind them for one pass."""

    def __init__(self, net: FusedNet, port: TargetPort, native: NativeGuesser | None) -> None:
        super().__init__(net, port, native=native)
        self._masked = net

    def block(self, seqs: Seq[int], depths: Seq[int]) -> list[Tensor]:
        """Read the pairs that wait, and guess: logits [depths[i], V] of the tokens behind the pending one."""
        waiting, net = self._waiting(seqs), self._masked
        tokens, places, firsts = list[int](), list[int](), [0, *accumulate(waiting.counts)]
        states: list[list[Tensor]] = [[] for _ in waiting.taps]
        for first, stop, depth in zip(firsts, firsts[1:], depths, strict=False):
            last = waiting.places[stop - 1]
            tokens += [*waiting.tokens[first:stop], *[net.config.mask_token_id or 0] * (depth - 1)]
            places += [*waiting.places[first:stop], *range(last + 1, last + depth)]
            for found, tap, mask in zip(states, waiting.taps, net.mask_taps, strict=True):
                found += [tap[first:stop], mask.detach().to(tap).expand(depth - 1, -1)]
        counts = [count + depth - 1 for count, depth in zip(waiting.counts, depths, strict=True)]
        wanted = [
            row for stop, depth in zip(accumulate(counts), depths, strict=True) for row in range(stop - depth, stop)
        ]
        context = self.cache.extend(seqs, counts)
        _, logits = self._run(tokens, places, context, wanted, taps=[torch.cat(found) for found in states])
        self._have_read(seqs)  # of the rows of the pass the pairs remain
        return list(logits.split(list(depths)))  # type: ignore[no-untyped-call]


class MaskedDrafter(StateDrafter):
    """One pass of the network a round, over all sequences that want a guess."""

    def __init__(self, options: BlockOptions, pairs: MaskedPairs, num_depths: int, traits: Traits) -> None:
        super().__init__(pairs, pairs.net.taps, traits)
        self._options, self._pairs, self._num_depths = options, pairs, num_depths

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        """A guess for each sequence that has a budget and whose features are known."""
        depths = [min(self._num_depths, depth) for depth in self.depths(seqs, budgets)]
        asked = [(seq.id, depth) for seq, depth in zip(seqs, depths, strict=True) if depth > 0]
        said: dict[int, Tensor] = {}
        if asked:
            ids, own = zip(*asked, strict=True)
            said = dict(zip(ids, self._pairs.block(ids, own), strict=True))
        return grow_marginals(self._options, seqs, depths, budgets, said)


def build(chosen: BlockOptions, port: TargetPort) -> MaskedDrafter:
    """Load the network, and check that it fits the target."""
    home = chosen_model(chosen.model, "p_eagle", also=[PICKLED])
    net = load_p_eagle(home, port.facts, lent=port)
    options, native, weights = on_kernels(net, chosen, port)
    traits = Traits(weights=(weights,), home=home, shape=options.drafts)
    return MaskedDrafter(options, MaskedPairs(net, port, native), net.config.num_depths, traits)


METHOD = DrafterMethod(
    name="p_eagle",
    summary="EAGLE-3's layers guess several tokens in one pass, by rows that stand for tokens not there yet",
    build=build,
    options=BlockOptions,
    paper=arxiv("2602.01469", "P-EAGLE: parallel-drafting EAGLE with scalable training"),
    shape_of=lambda chosen: "chain" if chosen.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
