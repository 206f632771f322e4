"""The reference: plain decoding with no cache, no batch and no drafts, which every method must reproduce.

One full pass over the whole text for each token. Greedy at temperature 0; else the keyed draw at each position,
which the seed-coupled rule promises to emit whatever drafts it.
"""

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.warp import warp_nodes


def decode(next_logits: Callable[[list[int]], Tensor], seq: Sequence) -> list[int]:
    """Write `seq` to its end. `next_logits`: all tokens so far -> logits [V] of the next. Returns the output ids."""
    seq = replace(seq, tokens=list(seq.tokens), output_counts=seq.output_counts.copy())
    while seq.finish_reason is None:
        distribution = warp_nodes(seq, next_logits(seq.tokens)[None], [[]])[0]
        seq.extend(verifier_coins(seq).draw(distribution, 0))
    return seq.output
