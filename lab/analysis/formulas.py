"""Formulas of docs/theory.md that no command draws: trees, cascades, drafting beside the pass, rejections by position.

The letters are those of `outdraft.analysis.theory`.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from itertools import accumulate
from operator import mul

from outdraft.analysis.theory import expected_tokens


def expected_tokens_by_position(rates: Iterable[float]) -> float:
    """The same where position i is accepted with its own rate, given that it is reached: 1 + sum of products."""
    return float(1 + sum(accumulate(rates, mul)))


def expected_tree_tokens(parents: Seq[int], rates: Seq[float]) -> float:
    """Of a tree: 1 + the sum over its nodes of the product of `rates` along the node's path.

    parents[i]: the parent of node i, which comes before it; node 0 is the pending token, its parent -1.
    rates[i]: the chance that node i is the child that is accepted, given that its parent was; rates[0] is not read.
    """
    reached = [1.0]
    for node in range(1, len(parents)):
        reached.append(reached[parents[node]] * rates[node])
    return sum(reached)


def cascade_cost(alpha: float, k: int, *, draft_cost: float, pass_cost: float) -> float:
    """What a token costs of a drafter that is itself accelerated: a pass of `pass_cost` over k tokens of `draft_cost`.

    The result is the `draft_cost` of the level above, so levels fold from the inside to the outside.
    """
    return (k * draft_cost + pass_cost) / expected_tokens(alpha, k)


def asynchronous_speedup(
    hit_rate: float, *, hit_tokens: float, miss_tokens: float, draft_time: float, backup_time: float
) -> float:
    """Of drafting while the target verifies (Saguaro, 2026): the next draft is ready with chance `hit_rate`.

    Each round costs the longer of its pass and of what is prepared beside it (`draft_time`), a miss also the back-up
    draft before its pass. Without misses this is drafting in parallel (PEARL, 2024).
    """
    tokens = hit_rate * hit_tokens + (1 - hit_rate) * miss_tokens
    return tokens / (max(1.0, draft_time) + (1 - hit_rate) * backup_time)


def hazards(rejected: Seq[float], reached: Seq[float]) -> list[float]:
    """P(rejected at i | reached i): the mean under a uniform prior, so that a position seen once is not certain."""
    return [(1 + lost) / (2 + seen) for lost, seen in zip(rejected, reached, strict=True)]


def count_hazards(rounds: Iterable[tuple[int, bool]], *, forget: float = 1.0) -> tuple[list[float], list[float]]:
    """Rounds (accepted, ended in a rejection), oldest first -> (rejected, reached) by position.

    Each round weighs `forget` times what the one after it weighs: 1 forgets nothing.
    """
    rejected: list[float] = []
    reached: list[float] = []
    for accepted, ended in rounds:
        rejected, reached = [forget * x for x in rejected], [forget * x for x in reached]
        grow = accepted + ended - len(reached)
        rejected += [0.0] * grow
        reached += [0.0] * grow
        for position in range(accepted + ended):
            reached[position] += 1
        if ended:
            rejected[accepted] += 1
    return rejected, reached


def lockstep_tokens(alpha: float, k: int, batch: int) -> float:
    """Tokens a pass and row if every row of a batch keeps only what all of them accepted: 1 + sum of alpha^(i batch).

    A ragged batch gives each row `expected_tokens(alpha, k)`.
    """
    return float(sum(alpha ** (i * batch) for i in range(k + 1)))
