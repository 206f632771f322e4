"""Production coins: every answer is a function of (request seed, position, purpose), so a batch cannot change a text.

    target's draws   (seed, TARGET, absolute position)             one a position, whatever was drafted
    accept flips     (seed, ACCEPT, root position, ordinal)        fresh in every round
    drafter's draws  (seed, DRAFT, root position, ordinal)         fresh in every round, never the verifier's
    drafter, coupled (seed, TARGET, absolute position)             on purpose: the guess races on the target's own noise

The root position is in every key of a round because one position can be examined in several rounds. Sharing the
target's noise is sound under the coupled rule alone: its output is the target's own draw by construction.

From a distribution and a key to tokens it is the exponential race: token i finishes at -log(u_i) / distribution_i; the
first to finish is a draw from the distribution, the first k in order are k draws without replacement (the Gumbel-max
trick in another guise; Kool, van Hoof and Welling, "Stochastic beams and where to find them", 2019,
https://arxiv.org/abs/1903.06059). Two distributions raced on the same noise agree as often as they overlap allows
closely: that is what makes the coupled rule accept.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.kernels.decoder import distributions
from outdraft.options.errors import NumericsError
from outdraft.sampling.noise import Purpose, fold, fold_into, uniform, uniforms


def race(distribution: Tensor, key: int, count: int = 1) -> list[int]:
    """`count` distinct indices of `distribution` [V] in drawing order; fewer if fewer have any mass.

    The distribution need not be normalised. Raises `NumericsError` when it has no mass or is not finite.
    """
    if (drawn := distributions.race(distribution, key, count)) is not None:
        return drawn
    times = (
        torch.log(uniforms(key, distribution.shape[0], distribution.device)).neg_().div_(distribution.to(torch.float64))
    )
    count = min(count, distribution.shape[0])
    order = torch.topk(times, count, largest=False).indices if count > 1 else torch.argmin(times).reshape(1)
    sound = (distribution[order] > 0) & distribution.sum().isfinite()
    drawn = [index for index, is_sound in zip(order.tolist(), sound.tolist(), strict=True) if is_sound]
    if not drawn:
        raise NumericsError(
            f"cannot draw from a distribution of {distribution.shape[0]} entries: it has no mass, or holds NaN or an "
            "infinite entry"
        )
    return drawn


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


def verifier_coins(seq: Sequence) -> KeyedCoins:
    """Coins of the coming round."""
    return KeyedCoins(seq.seed, len(seq.tokens) - 1)


def draft_coins(seq: Sequence) -> KeyedDraftCoins:
    """Coins of the coming round."""
    return KeyedDraftCoins(seq.seed, len(seq.tokens) - 1, seq.coupled)
