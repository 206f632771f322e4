"""Scripted drafters: each knows the target's answer and decides beforehand how much of it to guess.

They prove the loop rather than a method: with them the number of accepted tokens is known before the run.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.drafter import Seen, Traits
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.core.target import Needs
from outdraft.sampling.coins import verifier_coins
from outdraft.sampling.noise import fold, uniform
from outdraft.sampling.warp import warp_nodes

NextLogits = Callable[[list[int]], Tensor]


class ScriptedDrafter:
    """A chain of `budget.depth` tokens of which the first `num_right(round)` are what the target will write.

    "What the target will write" is its arg-max, or its keyed draw when the request is sampled, so that the script also
    holds under the seed-coupled rule. The tokens after the right ones are wrong on purpose.
    """

    def __init__(self, next_logits: NextLogits, num_right: Callable[[int], int]) -> None:
        self.needs = Needs()
        self.traits = Traits()
        self.next_logits = next_logits
        self.num_right = num_right
        self.rounds: dict[int, int] = {}
        self.num_seen: dict[int, int] = {}

    def begin(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            self.rounds[seq.id] = 0
            self.num_seen[seq.id] = 0

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        return [self._guess(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]

    def _guess(self, seq: Sequence, budget: Budget) -> Draft:
        right = self.num_right(self.rounds[seq.id])
        self.rounds[seq.id] += 1
        path: list[int] = []
        for depth in range(budget.depth):
            logits = self.next_logits([*seq.tokens, *path])
            token = verifier_coins(seq).draw(warp_nodes(seq, logits[None], [path])[0], depth)
            path.append(token if depth < right else (token + 1) % logits.shape[0])
        return chain([seq.pending, *path])

    def observe(self, seen: Seq[Seen]) -> None:
        """Every committed row is reported once, in order."""
        for one in seen:
            assert one.start == self.num_seen[one.seq.id], "observe skipped or repeated rows"
            self.num_seen[one.seq.id] += one.num_committed

    def end(self, seqs: Seq[Sequence]) -> None:
        for seq in seqs:
            del self.rounds[seq.id], self.num_seen[seq.id]


def oracle(next_logits: NextLogits) -> ScriptedDrafter:
    """Always right: every draft token is accepted."""
    return ScriptedDrafter(next_logits, lambda _: 1 << 30)


def liar(next_logits: NextLogits) -> ScriptedDrafter:
    """Always wrong: no draft token is accepted."""
    return ScriptedDrafter(next_logits, lambda _: 0)


def alternating(next_logits: NextLogits, pattern: Seq[int] = (2, 0, 3, 1)) -> ScriptedDrafter:
    """Right for `pattern[round]` tokens, the pattern repeated."""
    return ScriptedDrafter(next_logits, lambda i: pattern[i % len(pattern)])


class RandomTreeDrafter:
    """Trees of random shape whose children are really drawn from `q`: the material of distribution tests.

    The shape depends on the position and the node's index, never on a drawn value (dropping a token for its value
    would bend the distribution). `distributions(tokens)`: the drafter's own distribution [V] after `tokens`.
    """

    def __init__(self, distributions: Callable[[list[int]], Tensor], *, max_width: int = 3, max_nodes: int = 8) -> None:
        self.needs = Needs()
        self.traits = Traits()
        self.distributions = distributions
        self.max_width = max_width
        self.max_nodes = max_nodes

    def begin(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence."""

    def propose(self, seqs: Seq[Sequence], budgets: Seq[Budget]) -> list[Draft]:
        return [self._grow(seq, budget) for seq, budget in zip(seqs, budgets, strict=True)]

    def _grow(self, seq: Sequence, budget: Budget) -> Draft:
        coins = seq.draft_coins(seq)
        limit = min(self.max_nodes, budget.nodes if budget.nodes is not None else self.max_nodes)
        paths, parents, q = [[seq.pending]], [-1], []
        node = 0
        while node < len(paths):
            depth = len(paths[node]) - 1
            distribution = self.distributions([*seq.tokens[:-1], *paths[node]])
            width = 1 + int(self.max_width * uniform(fold(len(seq.tokens), node)))
            width = min(width, limit - (len(paths) - 1)) if depth < budget.depth else 0
            for token in coins.draw(distribution, depth, node, width) if width > 0 else []:
                paths.append([*paths[node], token])
                parents.append(node)
            q.append(distribution)
            node += 1
        tokens = torch.tensor([path[-1] for path in paths])
        return Draft(tokens=tokens, parents=torch.tensor(parents), q=torch.stack(q))

    def observe(self, seen: Seq[Seen]) -> None:
        """No state is kept for a sequence."""

    def end(self, seqs: Seq[Sequence]) -> None:
        """No state is kept for a sequence."""
