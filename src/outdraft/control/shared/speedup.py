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
    count: int = 1,
) -> tuple[int, float]:
    """The depth k in 0 .. len(survivals) that makes most tokens a second, and how many that are.

    draft_cost(k), pass_cost(rows): seconds of a batch of `count` sequences, taken as all alike. nodes(k): draft rows
    of one guess of depth k. More rows never take less time: where they seem to, that is noise.
    """
    plain = pass_cost(count)
    best, most = 0, count / plain
    tokens, falls = 1.0, 0
    for depth, survival in enumerate(survivals, start=1):
        tokens += survival
        rate = count * tokens / (draft_cost(depth) + max(plain, pass_cost(count * (1 + nodes(depth)))))
        if rate > most:
            best, most, falls = depth, rate, 0
        else:
            falls += 1
            if falls == 4:  # one measured cost may make a dent; the curve itself has one top
                break
    return best, most
