"""The contract of a network that writes chains: the rows of one round, fed a step at a time or run as whole chains.

    feed      one token of each chain -> logits; the chain loop chooses
    block     one pass -> the logits of all guesses of each chain, which know no token of it; the chain loop chooses
    chain     the kernels choose; every chain is whole after one call
    record    one recorded pass; its tokens stay on the device

Row i is sequence i of the round. A draft model, the target's own layers, an exit head and a network on the target's
hidden states each make one of these, and `grow_chains` asks no more of them. Data in: rows and tokens; data out: logits
or chains.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.kernels.decoder.chains import Chains, Draw

LeastProbs = list[tuple[float, float]]  # of each chain the least probability of a token, and of the path to it

# step, rows, tokens, num_open: feed tokens[j] to sequence rows[j], `step` positions after its pending token -> logits
# [num_open, V] of the first `num_open` rows; the rest are last tokens, fed only if the network asks for them
Feed = Callable[[int, list[int], list[int], int], Tensor]
# rows, depths -> logits [n, deepest, V] of the depths[j] tokens behind the pending one of sequence rows[j]
RunBlock = Callable[[list[int], list[int]], Tensor]
# rows, depths, draws, cutoffs -> depths[j] tokens of sequence rows[j], chosen as draws[j] says (None: the best ones);
# cutoffs: confidences are wanted, and the call may end once every chain has fallen below its own
RunChains = Callable[[list[int], list[int], list[Draw | None], LeastProbs | None], Chains]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainNetwork:
    """The rows of one round. Whole chains are grown where the network can; every network can be fed, or runs blocks."""

    feed: Feed | None = None
    block: RunBlock | None = None
    chain: RunChains | None = None
    record: Callable[[list[int], list[int]], Tensor] | None = None  # rows, depths -> best tokens [1 + deepest, rows]
    states: Callable[[], Tensor] | None = None  # [num_open, W] what the logits that were fed last were made of
    chances: Callable[[], Tensor] | None = None  # [num_open] a learned confidence in the tokens behind those fed last
    feed_last: bool = False  # each chain's last token is fed too: its hidden state is wanted, its logits are not

    def steps(self, depths: Seq[int]) -> Feed:
        """How it is fed, step by step, for chains of these depths: a block's pass is run at the first step."""
        if self.feed is not None:
            return self.feed
        assert self.block is not None
        run, logits, place = self.block, torch.empty(0), dict[int, int]()

        def feed(step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
            nonlocal logits, place
            if step == 0:
                logits, place = run(rows, [depths[i] for i in rows]), {row: at for at, row in enumerate(rows)}
            return logits[[place[row] for row in rows[:num_open]], step]

        return feed
