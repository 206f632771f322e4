"""What speculation should bring, by the formulas of Leviathan, Kalman and Matias (2022, arxiv.org/abs/2211.17192).

alpha: the chance that a draft token is accepted; k: draft tokens a pass; costs in units of one plain target pass.
"""

from collections.abc import Callable


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens a target pass emits, the extra one included: 1 + alpha + ... + alpha^k."""
    return float(sum(alpha**i for i in range(k + 1)))


def expected_speedup(alpha: float, k: int, *, draft_cost: float, pass_cost: Callable[[int], float]) -> float:
    """Against plain decoding: `draft_cost` of one draft token, `pass_cost(rows)` of a target pass."""
    return expected_tokens(alpha, k) / (k * draft_cost + pass_cost(k + 1))


def best_length(alpha: float, *, draft_cost: float, pass_cost: Callable[[int], float], longest: int = 32) -> int:
    """The k with the highest expected speed-up; 0, plain decoding, is one of the choices."""
    return max(range(longest + 1), key=lambda k: expected_speedup(alpha, k, draft_cost=draft_cost, pass_cost=pass_cost))
