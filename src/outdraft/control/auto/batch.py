"""How deep each sequence of a batch is to guess: the depths that make most tokens a second of all together.

    candidates   one more token of one sequence, worth its survival S_i; the likeliest first
    cut          the prefix of them with the most (B + sum of S) / (drafting + pass over all rows)

Survivals fall along a sequence, so a prefix holds a token only with those before it. SmartSpec (Liu et al., "Optimizing
speculative decoding for serving large language models using goodput", 2024, https://arxiv.org/abs/2406.14066) asks the
same question with one depth for all. Data in: survivals and costs; data out: depths.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq


def divide_depths(
    survivals: Seq[Seq[float]],
    arms: Seq[int],
    *,
    draft_costs: Seq[Callable[[int], float]],
    pass_cost: Callable[[float], float],
    nodes: Seq[Callable[[int], float]],
) -> tuple[list[int], float]:
    """Depths of all sequences, and tokens a second.

    survivals[i]: S_1, S_2, ... of sequence i with arms[i]; nodes[i](k): rows of its guess of depth k. draft_costs[a](k):
    seconds of arm a, whose sequences draft together, so the deepest counts.
    """
    count = len(survivals)
    candidates = sorted(
        (-survival, depth, i) for i, own in enumerate(survivals) for depth, survival in enumerate(own, 1)
    )
    depths, best = [0] * count, [0] * count
    deepest = [0] * len(draft_costs)
    drafting, rows, tokens = 0.0, float(count), float(count)
    most = tokens / pass_cost(rows)
    for lost, depth, i in candidates:
        arm = arms[i]
        if depth > deepest[arm]:
            drafting += draft_costs[arm](depth) - (draft_costs[arm](deepest[arm]) if deepest[arm] else 0.0)
            deepest[arm] = depth
        rows += nodes[i](depth) - nodes[i](depth - 1)
        tokens -= lost
        depths[i] = depth
        rate = tokens / (drafting + pass_cost(round(rows)))
        if rate > most:
            most, best = rate, list(depths)
    return best, most
