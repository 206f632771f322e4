"""The speed-up formulas: tokens a pass and tokens a second of guesses of every depth, and which depth is best.

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192. With survivals S_i (alpha^i for a constant acceptance alpha) a guess of depth k makes
E(k) = 1 + S_1 + ... + S_k tokens, the target's own included, and costs draft(k) + pass(1 + nodes). Depth 0, plain
decoding, is always one of the choices. Data in: survivals and costs; data out: a depth and its tokens a second.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq


def best_depth(
    survivals: Seq[float],
    *,
    draft_cost: Callable[[int], float],
    pass_cost: Callable[[float], float],
    nodes: Callable[[int], float] = float,
    others: int = 0,
) -> tuple[int, float]:
    """The depth k in 0 .. len(survivals) that makes most tokens a second, and how many that are.

    draft_cost(k), pass_cost(rows): seconds. nodes(k): draft rows of a guess of depth k. others: further rows in the
    pass, which belong to somebody else.
    """
    best, most = 0, 1 / pass_cost(1 + others)
    tokens, falls = 1.0, 0
    for depth, survival in enumerate(survivals, start=1):
        tokens += survival
        rate = tokens / (draft_cost(depth) + pass_cost(1 + others + nodes(depth)))
        if rate > most:
            best, most, falls = depth, rate, 0
        else:
            falls += 1
            if falls == 4:  # one measured cost may make a dent; the curve itself has one top
                break
    return best, most
