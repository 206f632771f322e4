"""The middle level's token after each path: the small drafter's guess by rejection sampling, or its own.

    guess x, drawn from q     keep x with min(1, p(x) / q(x)), else draw from (p - q)_+, normalised; p: over the view
    no guess                  draw from p

So a token has the distribution p given what stands before it, whatever the small drafter guessed, and p is the `q` of
the chain for the outer rule. Greedy guesses are compared; under the coupled rule both levels race on the target's own
noise instead. Sun et al., "TriForce", 2024, https://arxiv.org/abs/2404.11912. Data in: logits [V], paths and guesses;
data out: tokens with the distributions that they were drawn from (none for an argmax).
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.draft import Continuation
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import Chooser, Sample, takes_argmax
from outdraft.drafters.shared.composed.lanes import in_lane
from outdraft.sampling.warp import warp_nodes
from outdraft.verify.shared.proposal import keep_or_redraw

_LANE = 1  # coins that neither the small drafter nor the middle level's own draws ask


class Middle:
    """One round of the sequences. `num_accepted` and `num_rejected` count guesses judged by rejection sampling."""

    def __init__(self, seqs: Seq[Sequence], sample: Sample) -> None:
        self.num_accepted = self.num_rejected = 0
        self._seqs = seqs
        self._sample = sample
        self._choose = Chooser(seqs, sample=sample, confident=False)

    def write(
        self, i: int, logits: Tensor, paths: Seq[list[int]], guess: Continuation | None
    ) -> tuple[int, Tensor | None]:
        """The token of sequence i after its path, and the distribution [V] that it was drawn from."""
        seq, path = self._seqs[i], paths[i]
        if guess is None or seq.coupled or takes_argmax(seq, self._sample):
            chosen = self._choose([i], logits[None], paths)
            return chosen.tokens[0], chosen.distributions[0]
        p = warp_nodes(seq, logits[None], [path], guesses=True)[0]
        coins, depth = in_lane(seq, _LANE).draft_coins(seq), len(path)

        def flip(chance: float) -> bool:
            return coins.draw(torch.tensor([chance, 1 - chance], dtype=torch.float64), depth, 2 * depth)[0] == 0

        token = keep_or_redraw(p, guess.token, guess.q, flip, lambda rest: coins.draw(rest, depth, 2 * depth + 1)[0])
        if token == guess.token:
            self.num_accepted += 1
        else:
            self.num_rejected += 1
        return token, p
