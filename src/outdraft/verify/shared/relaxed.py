"""Lossy rules of one form: a test says which guesses are good enough; the longest path of such is kept.

    guesses [n] of a tree -> keep [n] bool -> the deepest node all of whose path is kept; ties: the likelier path

The extra token is the target's own at that node: its best one for a greedy request, else a draw. Nothing is taken back
for what was kept too easily, and that is the bias. A greedy request comes to most of these rules with its distribution
at temperature 1 (`RuleMethod.soft`): they ask how probable a token is, not whether it is the best.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case
from outdraft.verify.shared.proposal import draw_bonus


@dataclass(frozen=True, slots=True)
class Guesses:
    """The acceptable nodes below the root of one tree."""

    nodes: list[int]
    rows: Tensor  # [n, V] p at each guess's parent
    tokens: Tensor  # [n]
    masses: Tensor  # [n] p of the guess


def keep_longest(case: Case, keep: Callable[[Guesses], Tensor]) -> Verdict:
    """The longest path of kept guesses. `keep`: guesses -> [n] bool."""
    nodes = [child for below in case.tree.children for child in below]
    if not nodes:
        return case.verdict(0, own_token(case, 0))
    tokens = torch.tensor([case.tree.tokens[node] for node in nodes], device=case.p.device)
    rows = case.p[[case.tree.parents[node] for node in nodes]]
    masses = rows.gather(-1, tokens[:, None])[:, 0]
    kept = keep(Guesses(nodes, rows, tokens, masses)).tolist()
    reached = {0: 0.0}  # node -> log p of its path, where every guess on it was kept
    for node, good, mass in sorted(zip(nodes, kept, masses.tolist(), strict=True)):
        above = case.tree.parents[node]
        if good and mass > 0 and above in reached:
            reached[node] = reached[above] + math.log(mass)
    end = max(reached, key=lambda node: (case.tree.depths[node], reached[node]))
    return case.verdict(end, own_token(case, end))


def own_token(case: Case, node: int) -> int:
    """What the target itself says after `node`."""
    if case.seq.request.params.greedy:
        return int(case.p[node].argmax())
    if case.tree.children[node]:
        return case.coins.draw(case.p[node], case.tree.depths[node])
    return draw_bonus(case, node)
