"""The drafter's coins, never the verifier's; in the coupled rule they are the target's own noise, on purpose."""

from dataclasses import dataclass, replace

from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.sampling.coins import target_key
from outdraft.sampling.draw import race
from outdraft.sampling.noise import Purpose, fold, fold_into


@dataclass(frozen=True, slots=True)
class KeyedDraftCoins:
    """The drafter's coins of one sequence and round."""

    seed: int
    root: int
    coupled: bool

    def in_round(self, position: int) -> "KeyedDraftCoins":
        """The same place under another seed; coupled coins are the target's own noise and stay as they are."""
        return self if self.coupled else replace(self, seed=fold(self.seed, position))

    def draw(self, distribution: Tensor, depth: int, ordinal: int, count: int = 1) -> list[int]:
        """`count` children of the node `ordinal` at `depth`, without replacement, in drawing order."""
        if self.coupled:
            key = target_key(self.seed, self.root + depth + 1)
        else:
            key = fold(self.seed, Purpose.DRAFT, self.root, ordinal)
        return race(distribution, key, count)

    def chain_keys(self, length: int) -> list[int]:
        """The keys of `draw` along a chain, where node i stands at depth i."""
        if self.coupled:
            stem, first = fold(self.seed, Purpose.TARGET), self.root + 1
        else:
            stem, first = fold(self.seed, Purpose.DRAFT, self.root), 0
        return [fold_into(stem, first + i) for i in range(length)]


def draft_coins(seq: Sequence) -> KeyedDraftCoins:
    """Coins of the coming round."""
    return KeyedDraftCoins(seq.seed, len(seq.tokens) - 1, seq.coupled)
