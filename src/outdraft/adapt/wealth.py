"""Evidence that a mean is above 0: the wealth of a player who bets that the next number is.

    wealth = product over t of  1 + bet_t x_t        x_t >= -1, bet_t in [0, 0.95] by x_1 .. x_{t-1} alone
    bet_t  = (1/4 + sum of x) / (1/4 + sum of x^2)   cut to that range

If no x has a mean above 0, given those before it, no bet gains on average, so the wealth ever reaches 1 / level with a
probability of at most `level` (Ville's inequality): it may be looked at after every number. Nothing else is assumed of
the numbers. Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2020,
https://arxiv.org/abs/2010.09686: the bet is their aGRAPA, mean over mean square, which is near the one that gains most.
The quarters, ours, make it begin high: a mean that is small beside the range takes the highest bet all along.
"""

from math import log1p

_PRIOR = 0.25
_HIGHEST = 0.95  # so that x = -1 does not end the game


class Wealth:
    """`log`: the logarithm of the wealth; `best`: the highest so far, which is what a level is compared with."""

    __slots__ = ("_squares", "_sum", "best", "log")

    def __init__(self) -> None:
        self.log = self.best = 0.0
        self._sum = self._squares = _PRIOR

    def add(self, x: float) -> None:
        """The next number, at least -1."""
        bet = min(_HIGHEST, max(0.0, self._sum / self._squares))
        self.log += log1p(bet * x)
        self.best = max(self.best, self.log)
        self._sum += x
        self._squares += x * x
