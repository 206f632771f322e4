"""Greedy match: follow the child that equals the target's best token; where none does, emit that token.

Paper: Blockwise Parallel Decoding for Deep Autoregressive Models, 2018, https://arxiv.org/abs/1811.03115
In: trees and p [M, V] whose rows are one-hot (temperature 0). Out: the longest path of best tokens, and one more.
The output is plain greedy decoding's, token for token. A request with a temperature is refused: its distribution is not
one-hot.
"""

from collections.abc import Sequence as Seq
from typing import cast

from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.method import Paper, RuleMethod
from outdraft.core.packing import PackedDrafts
from outdraft.core.request import Request
from outdraft.core.verdict import Verdict
from outdraft.options.errors import CapabilityError
from outdraft.verify.shared.case import Case, NoOptions, make_cases


class Greedy:
    """One argmax for the whole batch, then plain Python."""

    lossless = True

    def couples(self, request: Request) -> bool:
        """Never: no coin is asked. A request arrives here first, so one that is not greedy is refused here."""
        _check(request)
        return False

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """One verdict for each draft that is not None; `coins` are not asked."""
        cases = make_cases(packed, p, coins)
        for case in cases:
            _check(case.seq.request)
        best = best_tokens(cases, p)
        return [follow(case, best) for case in cases]


def best_tokens(cases: Seq[Case], p: Tensor) -> list[int]:
    """[M, V] -> the most probable token at each node."""
    if cases and cases[0].best is not None:
        return cases[0].best
    return cast(list[int], p.argmax(-1).tolist())


def follow(case: Case, best: list[int]) -> Verdict:
    """Walk while a child is the best token. `best`: one token for each of the M nodes of the pass."""
    tree, node = case.tree, 0
    while True:
        token = best[case.first + node]
        if (child := tree.child(node, token)) is None:
            return case.verdict(node, token)
        node = child


def _check(request: Request) -> None:
    if not request.params.greedy:
        raise CapabilityError(
            f"verifier 'greedy' follows the best token only, but a request asks for temperature "
            f"{request.params.temperature}: use verifier 'auto', or temperature 0"
        )


METHOD = RuleMethod(
    name="greedy",
    summary="follow the target's best token; for temperature 0",
    build=lambda options: Greedy(),
    options=NoOptions,
    paper=Paper(
        title="Blockwise Parallel Decoding for Deep Autoregressive Models",
        year=2018,
        link="https://arxiv.org/abs/1811.03115",
    ),
    judges=("chain", "tree"),
)
