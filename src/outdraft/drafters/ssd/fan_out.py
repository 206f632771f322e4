"""Which outcomes of a pass are worth a prepared guess: the geometric fan-out of Saguaro.

    P_k = a^k (1 - a),  P_K = a^K       chance that k of K tokens are accepted, a: the acceptance rate
    F^-r                                chance that the token after them is none of the F likeliest
    F_k = F_0 a^(k / (1 + r)),  F_K = F_0 a^(K / (1 + r)) (1 - a)^(-1 / (1 + r))

minimises the sum of P_k F_k^-r where the F_k have a given sum. The token of rank j after k accepted ones is worth
P_k j^-(1 + r); taking outcomes in that order gives these F_k in whole numbers, and a drafter stopped early has
prepared the best ones. Kumar et al., "Speculative speculative decoding", 2026, https://arxiv.org/abs/2603.03251.
Data in: a, r, how many candidates there are; data out: pairs of accepted tokens and rank.
"""

from collections.abc import Sequence as Seq
from heapq import heapify, heappop, heappush


def rank_outcomes(acceptance: float, decay: float, available: Seq[int], count: int) -> list[tuple[int, int]]:
    """The best `count` pairs (k, rank from 1), best first, with ranks up to `available[k]`, k = 0 .. K."""
    longest = len(available) - 1
    chances = [acceptance**k * (1 - acceptance if k < longest else 1) for k in range(longest + 1)]
    best = [(-chances[k], k, 1) for k, most in enumerate(available) if most]
    heapify(best)
    chosen: list[tuple[int, int]] = []
    while best and len(chosen) < count:
        _, k, rank = heappop(best)
        chosen.append((k, rank))
        if rank < available[k]:
            heappush(best, (-chances[k] * (rank + 1) ** -(1 + decay), k, rank + 1))
    return chosen


def fan_outs(acceptance: float, decay: float, depth: int, count: int) -> list[int]:
    """F_0 .. F_depth with the sum `count`."""
    chosen = rank_outcomes(acceptance, decay, [count] * (depth + 1), count)
    return [sum(k == place for k, _ in chosen) for place in range(depth + 1)]
