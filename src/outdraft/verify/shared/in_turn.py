"""Candidates in turn, by the target's own probabilities: is x among so many draws from the mass not yet tried?

    s draws    accept x with 1 - (1 - p(x) / left)^s; else left loses p(x); none accepted: draw from what is left

One draw is exact, whatever proposed the candidates; more draws accept more and are lossy. q is not read. Reference:
`verify.sequential` (s = 1).
"""

from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case
from outdraft.verify.shared.proposal import draw_bonus, normalised, without


def judge_in_turn(case: Case, *, num_draws: int = 1) -> Verdict:
    """One gather reads p of every drafted token; a whole row is touched once, for the last draw."""
    tree, node, depth = case.tree, 0, 0
    guesses = [child for below in tree.children for child in below]
    parents, tokens = [tree.parents[child] for child in guesses], [tree.tokens[child] for child in guesses]
    masses = dict(zip(guesses, case.p[parents, tokens].tolist() if guesses else [], strict=True))
    while True:
        if not tree.children[node]:
            return case.verdict(node, draw_bonus(case, node))
        tried: list[int] = []
        left = 1.0
        accepted = None
        for child in tree.children[node]:
            token = tree.tokens[child]
            mass = 0.0 if token in tried else masses[child]
            if mass > 0 and case.coins.flip(_among(mass, left, num_draws), child):
                accepted = child
                break
            tried.append(token)
            left -= mass
        if accepted is None:
            distribution, _ = normalised(without(case.p[node], tried), case.p[node])
            return case.verdict(node, case.coins.draw(distribution, depth))
        node, depth = accepted, depth + 1


def _among(mass: float, left: float, num_draws: int) -> float:
    """Chance that a token is among the draws."""
    once = min(1.0, mass / left) if left > 0 else 1.0
    return once if num_draws == 1 else 1.0 - (1.0 - once) ** num_draws
