"""The plainest lossless rule, and the plainest policy: what a drafter is tested with when the rule is not the question.

rule     at each node draw the target's own token; while a child carries it, walk on; the first draw without a
         child is the extra token (what was drawn is the target's distribution whatever was guessed, q is not read)
policy   the same budget in every round, even where it runs past the end of the text
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.draft import HostTree
from outdraft.core.events import StepEvent
from outdraft.core.packing import PackedDrafts
from outdraft.core.policy import Budget
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.verdict import Verdict


class ReferenceRule:
    """Sample at each node, walk while equal. Greedy for greedy requests, seed-coupled for sampled ones."""

    lossless = True

    def couples(self, request: Request) -> bool:
        """Always: the output is the target's keyed draw at every position."""
        return True

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        own = iter(coins)
        return [
            self._walk(tree, p[packed.node_slice(i)], next(own))
            for i, tree in enumerate(packed.trees)
            if tree is not None
        ]

    def _walk(self, tree: HostTree, p: Tensor, coins: Coins) -> Verdict:
        path: list[int] = []
        node = 0
        while True:
            token = coins.draw(p[node], len(path))
            match = next((child for child in tree.children[node] if tree.tokens[child] == token), None)
            if match is None:
                return Verdict(tuple(path), token, bonus=not tree.children[node])
            path.append(match)
            node = match


@dataclass(frozen=True, slots=True)
class ConstantPolicy:
    """The same budget in every round; a request's own k wins."""

    budget: Budget

    def plan(self, seqs: Seq[Sequence]) -> list[Budget]:
        plans = []
        for seq in seqs:
            wanted = seq.request.most_drafted
            plans.append(self.budget if wanted is None else Budget(depth=wanted, nodes=self.budget.nodes))
        return plans

    def update(self, events: Seq[StepEvent]) -> None:
        """What became of a guess does not change the next plan."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence."""
