"""How deep each sequence of a batch is to guess: the depths that make most tokens a second of all together.

    candidates   one more token of one sequence, worth its survival S_i; the likeliest first
    cut          the prefix of them with the most (B + sum of S) / (drafting + pass over all rows)

Survivals fall along a sequence, so a prefix holds a token only with those before it. Sequences draft together, so the
deepest pays for all: the cut is sought for each greatest depth. SmartSpec (Liu et al., "Optimizing speculative decoding
for serving large language models using goodput", 2024, https://arxiv.org/abs/2406.14066) asks the same question with
one depth for all. Data in: survivals and costs; data out: depths.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

_GREATEST = (1, 2, 3, 4, 6, 8, 12, 16)  # depths that are tried as the greatest


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
