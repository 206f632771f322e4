"""The speed-up formulas: tokens a pass and tokens a second of guesses of every depth, and which depths are best.

Leviathan, Kalman and Matias, "Fast inference from transformers via speculative decoding", 2022,
https://arxiv.org/abs/2211.17192. With survivals S_i (alpha^i for a constant acceptance alpha) a guess of depth k makes
E(k) = 1 + S_1 + ... + S_k tokens, the target's own included, and costs draft(k) + pass(1 + nodes). Depth 0, plain
decoding, is always one of the choices. For a batch whose sequences differ:

    candidates   one more token of one sequence, worth its survival S_i; the likeliest first
    cut          the prefix of them with the most (B + sum of S) / (drafting + pass over all rows)

Survivals fall along a sequence, so a prefix holds a token only with those before it. Sequences draft together, so the
deepest pays for all: the cut is sought for each greatest depth. SmartSpec (Liu et al., "Optimizing speculative decoding
for serving large language models using goodput", 2024, https://arxiv.org/abs/2406.14066) asks the same question with
one depth for all. Data in: survivals and costs; data out: depths and their tokens a second.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

_GREATEST = (1, 2, 3, 4, 6, 8, 12, 16)  # depths that are tried as the greatest


def best_depth(
    survivals: Seq[float],
    *,
    draft_cost: Callable[[int], float],
    pass_cost: Callable[[float], float],
    nodes: Callable[[int], float] = float,
    count: int = 1,
    least: int = 0,
) -> tuple[int, float]:
    """The depth k in 0 .. len(survivals) that makes most tokens a second, and how many that are. `least` 1: plain
    decoding is no choice, and without survivals nothing is made.

    draft_cost(k), pass_cost(rows): seconds of a batch of `count` sequences, taken as all alike. nodes(k): draft rows
    of one guess of depth k. More rows never take less time: where they seem to, that is noise.
    """
    plain = pass_cost(count)
    best, most = (least, 0.0) if least else (0, count / plain)
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


def divide_depths(
    survivals: Seq[Seq[float]],
    arms: Seq[int],
    *,
    draft_costs: Seq[Callable[[int, int], float]],
    pass_cost: Callable[[float], float],
    nodes: Seq[Callable[[int], float]],
) -> tuple[list[int], float]:
    """Depths of all sequences, and tokens a second.

    survivals[i]: S_1, S_2, ... of sequence i, whose arm is arms[i]. nodes[i](k): rows of its guess of depth k.
    draft_costs[a](k, n): seconds of arm a for n guesses, the deepest of which has depth k.
    """
    count = len(survivals)
    candidates = sorted(
        (-survival, depth, i) for i, own in enumerate(survivals) for depth, survival in enumerate(own, start=1)
    )
    rows_of = [[each(depth) for depth in range(len(own) + 1)] for each, own in zip(nodes, survivals, strict=True)]
    plain = pass_cost(count)
    best, most = [0] * count, count / plain
    deepest = max((len(own) for own in survivals), default=0)
    for greatest in (*(depth for depth in _GREATEST if depth < deepest), deepest):
        depths, rows, tokens, drafting = [0] * count, float(count), float(count), 0.0
        reached: dict[int, int] = {}  # arm -> its deepest guess
        guessing: dict[int, int] = {}  # arm -> for how many sequences it guesses
        spent: dict[int, float] = {}  # arm -> its part of `drafting`
        for lost, depth, i in candidates:
            if depth > greatest:
                continue
            arm = arms[i]
            if depth > reached.get(arm, 0) or depth == 1:
                reached[arm] = max(reached.get(arm, 0), depth)
                guessing[arm] = guessing.get(arm, 0) + (depth == 1)
                costs = draft_costs[arm](reached[arm], guessing[arm])
                drafting += costs - spent.get(arm, 0.0)
                spent[arm] = costs
            rows += rows_of[i][depth] - rows_of[i][depth - 1]
            tokens -= lost
            depths[i] = depth
            rate = tokens / (drafting + max(plain, pass_cost(round(rows))))
            if rate > most:
                most, best = rate, list(depths)
    return best, most
