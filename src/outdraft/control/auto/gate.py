"""Where a guess is to end before its depth: one more token costs what it brings.

    costs    c = draft(k) / k + (pass(1 + j) - pass(1)) / j    seconds of a token, at depth k; the least for j <= k
    brings   the chance that all tokens so far are accepted, as the drafter sees it: the product of its probabilities
    end      where the product falls below r c, r tokens a second as planned

The rule of Leviathan, Kalman and Matias, 2022 (https://arxiv.org/abs/2211.17192), asked token by token; `calibrated`
asks it with fitted chances. Only arms that end a chain within one call are asked (`Traits.ends_early`): with others it
takes longer to ask than a token is worth.
"""

from collections.abc import Callable
from functools import cache

_MOST = 0.6  # a drafter that is surer than that goes on, whatever has been measured


def least_survival(
    rate: float, depth: int, *, draft_cost: Callable[[int], float], pass_cost: Callable[[float], float], count: int
) -> float:
    """The product below which a guess of this depth ends. The costs: those of `best_depth`, of a batch of `count`.

    Rows that cost most come last, so a token is taken to be as cheap as the cheapest: whether a guess may go to where
    they are dear is asked of its depth.
    """
    plain = pass_cost(count)
    passing = min((pass_cost(count * (1 + rows)) - plain) / rows for rows in range(1, depth + 1))
    return min(_MOST, rate * max(0.0, draft_cost(depth) / depth + passing) / count)


def ended_costs(
    draft_cost: Callable[[int], float], pass_cost: Callable[[float], float], nodes: Callable[[int], float], count: int
) -> tuple[Callable[[int], float], Callable[[float], float]]:
    """The costs of guesses of which some end early, by the depth of one that does not, and by its rows.

    Those that end take their share of what the others take more than a plain pass: a step of the curve counts for those
    that go beyond it.
    """
    plain, nodes = pass_cost(count), cache(nodes)

    def drafting(depth: int) -> float:
        return draft_cost(depth) * nodes(depth) / depth

    def passing(rows: float) -> float:
        depth = round(rows / count) - 1
        return plain + nodes(depth) / depth * (pass_cost(rows) - plain) if depth > 0 else plain

    return drafting, passing
