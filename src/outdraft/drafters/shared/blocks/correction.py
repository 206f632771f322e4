"""What may stand behind a block network's head: scores of a slot, corrected by the tokens chosen before it.

    scores U of all slots, from one pass ----+
    tokens from the anchor on -- summary ----+-- corrected scores of the slot --> its token --> the next slot

A new head is a subclass in one file. n blocks, S slots, D channels; E is the width of a summary.
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq

from torch import Tensor, nn

from outdraft.core.learner import Beside

Embed = Callable[[Tensor], Tensor]  # tokens [n, S] -> their embeddings [n, S, D]
Scores = Callable[[Tensor], Tensor]  # states [n, D] -> the network's own scores [n, V']


class Correction(nn.Module):
    """The base of all; of its own it changes nothing."""

    chance: Callable[[Tensor], Tensor] | None = None  # states and summaries [n, D + E] -> logits of acceptance [n]
    reads: Mapping[str, slice] = {}  # of its maps, which columns read states
    embeds: frozenset[str] = frozenset()  # of these maps, those that read embeddings of tokens instead
    reads_all = False  # summaries depend on the states of all slots of a block
    learns_scores = True  # the loss of guesses is of corrected scores; else of the network's own, and `beside` is its

    def summaries(self, h: Tensor, before: Tensor, embed: Embed) -> Tensor:
        """What is known before each slot: states h [n, b, D] of all, tokens [n, S] before the first S -> [n, S, E].

        From the slot of the anchor on, before which the anchor stands, as before the next one.
        """
        return h.new_zeros(*before.shape, 0)

    def forward(self, scores: Tensor, h: Tensor, summary: Tensor) -> Tensor:
        """Scores [n, V'] of one slot, its states [n, D], its summary [n, E] -> corrected scores [n, V']."""
        return scores

    def beside(
        self, scores: Scores, h: Tensor, before: Tensor, after: Tensor, rows: Tensor, weights: Tensor
    ) -> Seq[Beside]:
        """Losses of its own. h [n, S, D]; tokens [n, S] before each slot, and at it; what each slot counts [n, S].

        `scores`: as the network says. after: the draft's own ids, -1 for what it cannot say. rows [n, S]: the target's,
        -1 where a slot does not count.
        """
        return ()
