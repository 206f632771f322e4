"""Minimum block size: a round adds at least so many tokens, right or wrong. Lossy above 1.

Paper: Blockwise Parallel Decoding for Deep Autoregressive Models, 2018, https://arxiv.org/abs/1811.03115
In: any tree, p [N, V]. At each node the target draws its own token z (its best one for a greedy request); the child
that is z is accepted. Where fewer than `size` - 1 guesses were, the path goes on along the eldest children until there
are so many, or to a leaf. Out: a path and one more token, the target's own behind it, so that a round adds `size`
tokens or more. With size 1 the rule is `coupled`'s walk, and exact; above the draft's depth all guesses are kept.
"""

from dataclasses import dataclass

from outdraft.core.method import RuleMethod, arxiv
from outdraft.core.verdict import Verdict
from outdraft.options.ranges import check_range
from outdraft.verify.shared.case import Case, follow_draws
from outdraft.verify.shared.per_draft import PerDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumBlockOptions:
    """How many tokens a round adds at least. Raises `ConfigError` naming what is out of range."""

    size: int = 2  # how many tokens a round adds at least, the target's own token included (the paper's l); 1 is exact

    def __post_init__(self) -> None:
        check_range(self, "size", least=1, note="1 is the exact rule")


def build(options: MinimumBlockOptions) -> PerDraft:
    """The rule with its size."""

    def judge(case: Case) -> Verdict:
        verdict = follow_draws(case)
        node, depth = (verdict.path[-1], len(verdict.path)) if verdict.path else (0, 0)
        if depth >= options.size - 1 or not case.tree.children[node]:
            return verdict
        while depth < options.size - 1 and case.tree.children[node]:
            node, depth = case.tree.children[node][0], depth + 1
        return case.verdict(node, case.coins.draw(case.p[node], depth))

    return PerDraft(judge, lossless=options.size == 1)


METHOD = RuleMethod(
    name="minimum_block",
    summary="keeps at least so many tokens a round, right or wrong; exact at 1",
    build=build,
    options=MinimumBlockOptions,
    paper=arxiv("1811.03115", "Blockwise Parallel Decoding for Deep Autoregressive Models"),
    judges=("chain", "tree"),
)
