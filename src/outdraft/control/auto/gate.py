"""Where a guess is to end before its depth: one more token costs what it brings.

    costs    c = draft(k) / nodes(k) + (pass(1 + k) - pass(1)) / k      seconds of a token, of a guess of depth k
    brings   the chance that all tokens so far are accepted, as the drafter sees it: the product of its probabilities
    end      where the product falls below r c, r tokens a second as planned

The rule of Leviathan, Kalman and Matias, 2022 (https://arxiv.org/abs/2211.17192), asked token by token; `calibrated`
asks it with fitted chances. Only arms that end a chain within one call are asked (`Traits.ends_early`): with others it
takes longer to ask than a token is worth.
"""

from collections.abc import Callable

_MOST = 0.6  # a drafter that is surer than that goes on, whatever has been measured


def least_survival(
    rate: float,
    depth: int,
    *,
    draft_cost: Callable[[int], float],
    pass_cost: Callable[[float], float],
    nodes: Callable[[int], float],
    count: int,
) -> float:
    """The product below which a guess of this depth ends. The costs: those of `best_depth`, of a batch of `count`."""
    drafting = draft_cost(depth) / max(1.0, nodes(depth))
    passing = (pass_cost(count * (1 + depth)) - pass_cost(count)) / depth
    return min(_MOST, rate * max(0.0, drafting + passing) / count)


def mixed_pass(
    pass_cost: Callable[[float], float], nodes: Callable[[int], float], count: int
) -> Callable[[float], float]:
    """Seconds of a pass for guesses of which some end early, by the rows of one that does not.

    Between both, not at the mean of the rows: a step of the curve counts for those guesses that go beyond it.
    """

    def mixed(rows: float) -> float:
        plain, depth = pass_cost(count), round(rows / count) - 1
        return plain + nodes(depth) / depth * (pass_cost(rows) - plain) if depth > 0 else plain

    return mixed
