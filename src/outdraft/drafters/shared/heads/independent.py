"""Heads that do not know the tokens guessed before their own: each runs once a round, and its guess is the same on
all paths.

Data in: the text's state and the head's number; data out: logits for every path of that text.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.heads.drafter import Ask


def independent(say: Callable[[Tensor, int], Tensor]) -> Ask:
    """`say`: states [n, W], number of the head -> logits [n, V]."""

    def ask(states: Tensor, seqs: Seq[Sequence], paths: Seq[list[int]]) -> Tensor:
        first = {seq.id: row for row, seq in reversed(list(enumerate(seqs)))}
        rows = sorted(first.values())
        said = say(states[rows], len(paths[0]) - 1)
        return said[[rows.index(first[seq.id]) for seq in seqs]]

    return ask
