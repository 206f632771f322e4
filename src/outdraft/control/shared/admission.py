"""How many slots of each drafted guess go into a pass: those that bring more tokens than their rows cost.

    slots      the next one of every guess, worth its survival S; the likeliest is admitted first
    admitted   while some number j of further slots brings   S_1 + ... + S_j  >=  r (pass(m + j) - pass(m))
               m: rows so far; r: tokens a second, as rounds go

The guesses are there, so what they cost no longer counts. More rows pay where they make tokens at the rate r or faster
(Leviathan, Kalman and Matias, 2022, https://arxiv.org/abs/2211.17192); j looks beyond a step of a pass's cost. A slot
is asked about before its own value is read: what is not admitted has not been looked at. So a survival may depend on
the tokens before its slot, and a drawn guess that ends there keeps its distribution, whatever the other guesses are.
Data in: survivals by slot, costs; data out: slots of each guess.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from heapq import heapify, heappop, heapreplace, nsmallest

_AHEAD = 8  # slots that are foreseen


def admit(
    survivals: Seq[Seq[float]], *, rows: int, rate: float, pass_cost: Callable[[float], float], usual: float
) -> list[int]:
    """survivals[i]: of the slots of guess i, never rising. rows: of the pass without them. usual: the chance by which a
    slot not yet read survives the one before it.
    """
    admitted = [0] * len(survivals)
    heap = [(-own[0], i) for i, own in enumerate(survivals) if own]
    heapify(heap)
    while heap:
        lost, i = heap[0]
        pays = -lost >= rate * _more(pass_cost, rows, 1)
        if not pays and not _pays_later(nsmallest(_AHEAD, heap), rows, rate, pass_cost, usual):
            break
        admitted[i], rows = admitted[i] + 1, rows + 1
        if admitted[i] < len(survivals[i]):
            heapreplace(heap, (-survivals[i][admitted[i]], i))
        else:
            heappop(heap)
    return admitted


def _more(pass_cost: Callable[[float], float], rows: int, more: int) -> float:
    """Seconds of so many rows more: never less than none, for where it seems so, that is noise."""
    return max(0.0, pass_cost(rows + more) - pass_cost(rows))


def _pays_later(
    best: Seq[tuple[float, int]], rows: int, rate: float, pass_cost: Callable[[float], float], usual: float
) -> bool:
    """Whether several slots pay together, by what is known of the next ones and the usual chance behind them.

    How many slots a guess has left is not asked: where unlikely tokens end it, its length says what was drawn.
    """
    foreseen = [-lost * usual**k for lost, _ in best for k in range(_AHEAD)]
    tokens = 0.0
    for more, survival in enumerate(sorted(foreseen, reverse=True)[:_AHEAD], start=1):
        tokens += survival
        if tokens >= rate * _more(pass_cost, rows, more):
            return True
    return False
