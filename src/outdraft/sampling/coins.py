"""Production coins: every answer is a function of (request seed, position, purpose), so a batch cannot change a text.

    target's draws   (seed, TARGET, absolute position)             one a position, whatever was drafted
    accept flips     (seed, ACCEPT, root position, ordinal)        fresh in every round
    drafter's draws  (seed, DRAFT, root position, ordinal)         fresh in every round, never the verifier's
    drafter, coupled (seed, TARGET, absolute position)             on purpose: the guess races on the target's own noise

The root position is in every key of a round because one position can be examined in several rounds. Sharing the
target's noise is sound under the coupled rule alone: its output is the target's own draw by construction.
"""

from dataclasses import dataclass

from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.sampling.draw import race
from outdraft.sampling.noise import Purpose, fold, uniform


def target_key(seed: int, position: int) -> int:
    """The noise of the target's own draw of the token at an absolute position."""
    return fold(seed, Purpose.TARGET, position)


@dataclass(frozen=True, slots=True)
class KeyedCoins:
    """The verifier's coins of one sequence and round. `root`: absolute position of the pending token."""

    seed: int
    root: int

    def flip(self, probability: float, ordinal: int) -> bool:
        """True with `probability`; 0 never, 1 always."""
        return uniform(fold(self.seed, Purpose.ACCEPT, self.root, ordinal)) < probability

    def draw(self, distribution: Tensor, depth: int) -> int:
        """The target's draw of the token after `depth` accepted nodes."""
        return race(distribution, target_key(self.seed, self.root + depth + 1))[0]


def verifier_coins(seq: Sequence) -> KeyedCoins:
    """Coins of the coming round."""
    return KeyedCoins(seq.seed, len(seq.tokens) - 1)
