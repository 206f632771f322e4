"""Sample and match: draw the target's own token at each node; descend if a child is that token, else emit it.

Paper: Coupling without Communication and Drafter-Invariant Speculative Decoding, 2024,
https://arxiv.org/abs/2408.07978
In: any tree, p [M, V], coins keyed by absolute position. Out: plain decoding's text for the same seed, whatever was
drafted. A drafter that races on the same noise (`Sequence.coupled`) agrees with it as often as the two laws overlap
lets it; sharing the noise is sound here because the guess cannot change what is emitted, only how soon.
"""

from outdraft.core.registry import Method, Paper
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoOptions, PerDraft


def judge(case: Case) -> Verdict:
    """One keyed draw at each visited depth."""
    tree, node, depth = case.tree, 0, 0
    while True:
        token = case.coins.draw(case.p[node], depth)
        child = next((c for c in tree.children[node] if tree.tokens[c] == token), None)
        if child is None:
            return case.verdict(node, token)
        node, depth = child, depth + 1


METHOD = Method(
    name="coupled",
    kind="verifier",
    summary="the target's own keyed draw at each node: the same seed gives the same text with any drafter or none",
    build=lambda options: PerDraft(judge, coupled=True),
    options=NoOptions,
    paper=Paper(
        title="Coupling without Communication and Drafter-Invariant Speculative Decoding",
        year=2024,
        link="https://arxiv.org/abs/2408.07978",
    ),
    shapes=("chain", "tree"),
)
