"""Chains of best tokens in one recorded pass: the host builds the drafts without having seen a token of them.

Data in: sequences, depths and the recording; data out: chains whose tokens lie on the device until they are judged.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.sequence import Sequence


def recorded_chains(
    seqs: Seq[Sequence], depths: Seq[int], record: Callable[[list[int], list[int]], Tensor]
) -> list[Draft]:
    """A chain of `depths[i]` tokens for each sequence; depth 0 is the pending token alone."""
    drafts = [chain([seq.pending]) for seq in seqs]
    rows = [i for i, depth in enumerate(depths) if depth > 0]
    if rows:
        tokens = record(rows, [depths[i] for i in rows])  # [1 + deepest, rows]
        for column, i in enumerate(rows):
            drafts[i] = chain(tokens[: 1 + depths[i], column])
    return drafts
