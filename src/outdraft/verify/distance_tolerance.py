"""Distance tolerance: accept a guess whose id is close to the target's own token. Lossy above 0.

Paper: Blockwise Parallel Decoding for Deep Autoregressive Models, 2018, https://arxiv.org/abs/1811.03115
For vocabularies whose ids are ordered, such as pixel intensities: a pixel that is off by one is no fault that shows.
In: any tree, p [N, V]. At each node the target draws its own token z (its best one for a greedy request); of the
children with p(x) > 0 the nearest to z is accepted if |x - z| <= distance, else z is emitted. Greedy requests come with
their distribution at temperature 1, for in a one-hot one no other token is possible. Out: a path and one more token.
With distance 0 the rule is `coupled`'s walk, and exact.
"""

from dataclasses import dataclass

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.verdict import Verdict
from outdraft.options.ranges import check_range
from outdraft.verify.shared.case import Case
from outdraft.verify.shared.per_draft import PerDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class DistanceToleranceOptions:
    """How far off a guess may be. Raises `ConfigError` naming what is out of range."""

    distance: int = 1  # how far a guess's token id may be from the one that the target draws; 0 is exact

    def __post_init__(self) -> None:
        check_range(self, "distance", least=0, note="0 is the exact rule")


def build(options: DistanceToleranceOptions) -> PerDraft:
    """The rule with its distance."""

    def judge(case: Case) -> Verdict:
        tokens, node, depth = case.tree.tokens, 0, 0
        while True:
            p = case.p[node]
            token = int(p.argmax()) if case.seq.request.params.greedy else case.coins.draw(p, depth)
            possible = [child for child in case.tree.children[node] if p[tokens[child]] > 0]
            near = [(abs(tokens[child] - token), child) for child in possible]
            off, child = min(near, default=(options.distance + 1, -1))
            if off > options.distance:
                return case.verdict(node, token)
            node, depth = child, depth + 1

    return PerDraft(judge, lossless=options.distance == 0)


METHOD = RuleMethod(
    name="distance_tolerance",
    summary="keeps a guess whose id is close to the target's own token, for ordered vocabularies; exact at 0",
    build=build,
    options=DistanceToleranceOptions,
    paper=arxiv("1811.03115", "Blockwise Parallel Decoding for Deep Autoregressive Models"),
    judges=("chain", "tree"),
    soft=lambda options: options.distance > 0,
)
