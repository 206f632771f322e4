"""One candidate after the other: accept child x with p(x) over the mass not yet tried; none left: draw from that mass.

Paper: EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees, 2024, https://arxiv.org/abs/2406.16858
In: any tree that does not depend on the rule's coins, above all deterministic ones (look-up, best-first trees), where
no rule accepts more. q is not read. Out: a path and one more token with the target's law, given the draft, whatever it
is.
"""

from outdraft.core.registry import Method, Paper
from outdraft.core.verdict import Verdict
from outdraft.verify.shared.case import Case, NoOptions, PerDraft
from outdraft.verify.shared.proposal import normalised, without


def judge(case: Case) -> Verdict:
    """One gather reads p of every drafted token; a whole row is touched once, for the last draw."""
    tree, node, depth = case.tree, 0, 0
    guesses = [child for below in tree.children for child in below]
    parents, tokens = [tree.parents[child] for child in guesses], [tree.tokens[child] for child in guesses]
    masses = dict(zip(guesses, case.p[parents, tokens].tolist() if guesses else [], strict=True))
    while True:
        tried: list[int] = []
        left = 1.0
        accepted = None
        for child in tree.children[node]:
            token = tree.tokens[child]
            mass = 0.0 if token in tried else masses[child]
            if mass > 0 and case.coins.flip(min(1.0, mass / left) if left > 0 else 1.0, child):
                accepted = child
                break
            tried.append(token)
            left -= mass
        if accepted is None:
            law = case.p[node]  # [V]
            if tried:
                law, _ = normalised(without(law, tried), law)
            return case.verdict(node, case.coins.draw(law, depth))
        node, depth = accepted, depth + 1


METHOD = Method(
    name="sequential",
    kind="verifier",
    summary="tries deterministic candidates one by one with the target's own probabilities",
    build=lambda options: PerDraft(judge),
    options=NoOptions,
    paper=Paper(
        title="EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees",
        year=2024,
        link="https://arxiv.org/abs/2406.16858",
    ),
    shapes=("chain", "tree"),
)
