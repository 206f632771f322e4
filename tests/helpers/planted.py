"""Faults that public code has had: a guess kept for being likely enough under q, a residual forgotten, an argmax guess
judged by a soft q, and coins that are not fresh; and a rule that keeps every guess and says that it is lossless.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.coins import Coins, DraftCoins
from outdraft.core.method import RuleMethod
from outdraft.core.verdict import Verdict
from outdraft.testing.accept_all import accept_all
from outdraft.verify.shared.case import Case, NoRuleOptions
from outdraft.verify.shared.per_draft import PerDraft


def accept_dominated(case: Case) -> Verdict:
    """Keep a child iff p(x) >= q(x), then draw from p as if nothing had been tried."""
    tree, node, depth = case.tree, 0, 0
    while True:
        for child in tree.children[node]:
            token = tree.tokens[child]
            if float(case.p[node, token]) >= (1.0 if case.q is None else float(case.q[node, token])):
                node, depth = child, depth + 1
                break
        else:
            return case.verdict(node, case.coins.draw(case.p[node], depth))


def forget_residual(case: Case) -> Verdict:
    """The right coin, min(1, p / q), but after a rejection p instead of the residual."""
    tree, node, depth = case.tree, 0, 0
    while children := tree.children[node]:
        child, token = children[0], tree.tokens[children[0]]
        q = 1.0 if case.q is None else float(case.q[node, token])
        if not case.coins.flip(min(1.0, float(case.p[node, token]) / q), child):
            break
        node, depth = child, depth + 1
    return case.verdict(node, case.coins.draw(case.p[node], depth))


@dataclass(frozen=True, slots=True)
class StuckCoins:
    """Verifier's coins whose flips all land on the same number: one uniform for a whole round."""

    honest: Coins

    def flip(self, probability: float, ordinal: int) -> bool:
        """The same coin for every ordinal."""
        return self.honest.flip(probability, 0)

    def draw(self, distribution: Tensor, depth: int) -> int:
        return self.honest.draw(distribution, depth)


@dataclass(frozen=True, slots=True)
class ArgmaxDraftCoins:
    """A drafter's coins that always fall on the most probable token, while the draft claims to be drawn from q."""

    honest: DraftCoins

    def draw(self, distribution: Tensor, depth: int, ordinal: int, count: int = 1) -> list[int]:
        """The best `count` tokens."""
        return [int(token) for token in torch.topk(distribution, min(count, len(distribution))).indices]

    def in_round(self, position: int) -> "ArgmaxDraftCoins":
        """There is no noise that could be shared."""
        return self


LIAR = RuleMethod(
    name="liar",
    summary="keeps every guess, and says that it is lossless",
    build=lambda options: PerDraft(accept_all),
    options=NoRuleOptions,
    judges=("chain", "tree"),
    contract=3,
)
