"""How often the child of each rank is the accepted one, counted while decoding, old rounds fading.

    a round's path   root -> its 2nd child -> that one's 1st child -> none of two        examined: 3 nodes with children
                     rank 1: 1 of 3    rank 2: 1 of 3    (none: 1 of 3)

Chen et al., "Sequoia", 2024, https://arxiv.org/abs/2402.12374. Data in: drafts and verdicts; data out: p_1 .. p_K.
"""

from collections.abc import Sequence as Seq

from outdraft.core.draft import HostTree

_FADE = 0.99  # a round's weight after the next one


class RankRates:
    """Rates that begin as `prior`, which weighs as much as a few rounds."""

    def __init__(self, prior: Seq[float], weight: float = 8.0) -> None:
        self._accepted = [rate * weight for rate in prior]
        self._examined = [weight] * len(prior)

    @property
    def rates(self) -> list[float]:
        return [accepted / examined for accepted, examined in zip(self._accepted, self._examined, strict=True)]

    def learn(self, tree: HostTree, path: Seq[int]) -> None:
        """A rule accepted `path` of `tree`."""
        ranks = range(len(self._accepted))
        for k in ranks:
            self._accepted[k] *= _FADE
            self._examined[k] *= _FADE
        for node, child in zip([0, *path], [*path, -1], strict=True):
            below = tree.children[node]
            for k in ranks[: len(below)]:
                self._examined[k] += 1
                self._accepted[k] += below[k] == child
