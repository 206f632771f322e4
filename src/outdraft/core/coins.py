"""Random numbers as arguments: the protocols through which a rule or a drafter gets its random decisions.

A rule has no random generator of its own. Production coins are keyed by (seed, position, purpose), so that a result
does not depend on the batch (`sampling.coins`); the tests hand in coins that walk through every outcome with its
probability, and so enumerate the exact distribution of the very code that ships (`enumerate_distribution` in
tests/helpers).
"""

from typing import Protocol

from torch import Tensor


class Coins(Protocol):
    """The verifier's coins for one sequence and one round."""

    def flip(self, probability: float, ordinal: int) -> bool:
        """True with `probability`. Within one round every `ordinal` is an independent coin."""

    def draw(self, distribution: Tensor, depth: int) -> int:
        """One index from `distribution` [V], the token that follows `depth` accepted nodes.

        The noise belongs to the absolute position, so that asking twice at one depth gives the same noise: a rule draws
        at most one token a depth (one target draw per node).
        """


class DraftCoins(Protocol):
    """A drafter's coins for one sequence and one round: never the verifier's, except under the coupled rule."""

    def draw(self, distribution: Tensor, depth: int, ordinal: int, count: int = 1) -> list[int]:
        """`count` indices from `distribution` [V] without replacement, in the order drawn; fewer if the distribution
        has fewer.

        `depth`: of the node whose children these are (0 = the pending token). `ordinal`: that node's index.
        """

    def in_round(self, position: int) -> "DraftCoins":
        """Coins of its own for what is drafted, ahead of its time, while the pending token stands at `position`.

        A token that some rule has judged and dropped may be drafted again at the same place, and must not be drawn from
        the same noise: the verdict has revealed something about it. The target's own noise is shared on purpose.
        """
