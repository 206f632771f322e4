"""Greedy match: follow the child that equals the target's best token; where none does, emit that token.

Paper: Blockwise Parallel Decoding for Deep Autoregressive Models, 2018, https://arxiv.org/abs/1811.03115
In: trees and p [M, V] whose rows are one-hot (temperature 0). Out: the longest path of best tokens, and one more.
The output is plain greedy decoding's, token for token. A request with a temperature is refused: its distribution is not
one-hot.
"""

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.request import Request
from outdraft.core.verdict import Verdict
from outdraft.options.errors import CapabilityError
from outdraft.verify.shared.case import Case, NoRuleOptions
from outdraft.verify.shared.per_draft import PerDraft


class Greedy(PerDraft):
    """`PerDraft` has the walk; requests that are not greedy are refused as they arrive."""

    def __init__(self) -> None:
        super().__init__(_refuse, follows_best=True)

    def couples(self, request: Request) -> bool:
        """Never: no coin is asked."""
        if not request.params.greedy:
            raise _refusal(request)
        return False


def _refuse(case: Case) -> Verdict:
    raise _refusal(case.seq.request)


def _refusal(request: Request) -> CapabilityError:
    return CapabilityError(
        f"verifier 'greedy' follows the best token only, but a request asks for temperature "
        f"{request.params.temperature}: use verifier 'auto', or temperature 0"
    )


METHOD = RuleMethod(
    name="greedy",
    summary="follow the target's best token; for temperature 0",
    build=lambda options: Greedy(),
    options=NoRuleOptions,
    paper=arxiv("1811.03115", "Blockwise Parallel Decoding for Deep Autoregressive Models"),
    judges=("chain", "tree"),
)
