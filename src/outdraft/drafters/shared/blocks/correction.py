"""What may stand behind a block network's head: scores of a slot, corrected by the tokens chosen before it.

    scores U of all slots, from one pass ----+
    tokens from the anchor on -- summary ----+-- corrected scores of the slot --> its token --> the next slot

A new head is a subclass in one file. n blocks, S slots, D channels; E is the width of a summary. A head that reads the
scores of a whole block does so once, before any of its tokens is chosen (`known`).
"""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq

import torch
from torch import Tensor, nn

from outdraft.core.learner import OWN, Beside

Embed = Callable[[Tensor], Tensor]  # tokens [n, S] -> their embeddings [n, S, D]; of any other shape too
Scores = Callable[[Tensor], Tensor]  # states [n, D] -> the network's own scores [n, V']


class Correction(nn.Module):
    """The base of all; of its own it changes nothing."""

    chance: Callable[[Tensor], Tensor] | None = None  # states and summaries [n, D + E] -> logits of acceptance [n]
    reads: Mapping[str, slice] = {}  # of its maps, which columns read states
    embeds: frozenset[str] = frozenset()  # of these maps, those that read embeddings of tokens, or contexts, instead
    reads_all = False  # summaries depend on the states of all slots of a block
    reads_scores = False  # summaries are made of what is `known`, not of states
    learns_scores = True  # the loss of guesses is of corrected scores; else of the network's own, and `beside` is its

    def known(self, h: Tensor, scores: Tensor, context: Tensor, embed: Embed) -> Tensor:
        """What summaries read in place of states, where the head `reads_scores`: of states [n, b, D] of all slots,
        scores [n, S, V'] of all that guess, and the context [n, D] of the last committed row (zeros: there is none).
        """
        return h

    def summaries(self, h: Tensor, before: Tensor, embed: Embed) -> Tensor:
        """What is known before each slot: states h [n, b, D] of all, tokens [n, S] before the first S -> [n, S, E].

        From the slot of the anchor on, before which the anchor stands, as before the next one.
        """
        return h.new_zeros(*before.shape, 0)

    def forward(self, scores: Tensor, h: Tensor, summary: Tensor) -> Tensor:
        """Scores [n, V'] of one slot, its states [n, D], its summary [n, E] -> corrected scores [n, V']."""
        return scores

    def beside(
        self, scores: Scores, h: Tensor, before: Tensor, after: Tensor, rows: Tensor, weights: Tensor, known: Tensor
    ) -> Seq[Beside]:
        """Losses of its own. h [n, S, D]; tokens [n, S] before each slot, and at it; what each slot counts [n, S].

        `scores`: as the network says. after: the draft's own ids, -1 for what it cannot say. rows [n, S]: the target's,
        -1 where a slot does not count.
        """
        return ()


def unfilled(*shape: int, dtype: torch.dtype, device: torch.device) -> nn.Parameter:
    """A parameter of NaN, until it is loaded or begun."""
    return nn.Parameter(torch.full(shape, float("nan"), dtype=dtype, device=device))


def weighed(values: Tensor, rows: Tensor, heavy: Tensor) -> Beside:
    """A loss [N] of a slot at the target's rows [N], where each counts as `heavy` says [N]."""
    mean = float(heavy.mean()) if len(heavy) else 0.0
    return Beside(name=OWN, values=values * (heavy / (mean or 1.0)), rows=rows, weight=mean)
