"""The theory of speculative decoding: expected tokens, expected speed-up, the best draft length, and estimates of
alpha.

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192; the rest is derived in docs/theory.md.
    alpha      the chance that a draft token is accepted, given that those before it were
    k          draft tokens a pass (gamma)
    costs      in units of one plain target pass: `draft_cost` c of a draft token, `pass_cost(rows)` v of a target pass
"""

from collections.abc import Callable

PassCost = Callable[[int], float]


def flat(rows: int) -> float:
    """A target pass that costs the same however many rows it has: memory is the limit."""
    return 1.0


def expected_tokens(alpha: float, k: int) -> float:
    """Tokens a target pass emits, the extra one included: 1 + alpha + ... + alpha^k."""
    return float(sum(alpha**i for i in range(k + 1)))


def expected_speedup(alpha: float, k: int, *, draft_cost: float, pass_cost: PassCost = flat) -> float:
    """Against plain decoding: E(k) / (c k + v(k + 1))."""
    return expected_tokens(alpha, k) / (k * draft_cost + pass_cost(k + 1))


def best_length(alpha: float, *, draft_cost: float, pass_cost: PassCost = flat, longest: int = 32) -> int:
    """The k with the highest expected speed-up; 0, plain decoding, is a choice, and of equals the shortest wins."""
    return max(range(longest + 1), key=lambda k: expected_speedup(alpha, k, draft_cost=draft_cost, pass_cost=pass_cost))


def estimate_alpha(accepted: float, rejections: float) -> float:
    """The maximum-likelihood estimate of a truncated geometric distribution: A / (A + R); 0 if nothing was examined.

    R counts rounds that ended in a rejection. accepted / drafted would depend on the draft length.
    """
    examined = accepted + rejections
    return accepted / examined if examined else 0.0
