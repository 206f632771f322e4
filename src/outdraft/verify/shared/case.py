"""`Case`: one draft that is judged, with the target's distributions and its coins; what most rules do with one;
and what a pass is read for."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.draft import Continuation, HostTree
from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.verdict import Verdict
from outdraft.options.errors import CapabilityError, NumericsError


@dataclass(frozen=True, slots=True)
class Case:
    """One sequence's guess with the target's distributions and its coins."""

    seq: Sequence
    tree: HostTree
    p: Tensor  # [N, V]
    q: Tensor | None  # [R, V] in p's type, R >= N; None: every child was a deterministic guess
    drawn_from: list[int] | None  # row of q of each node; None: its parent's
    coins: Coins
    confidence: Tensor | None  # [N] the drafter's own probability of each node, if it says
    continuation: Continuation | None = None  # what was drafted behind the last node

    def row(self, child: int) -> int:
        """The row of q that `child` was drawn from."""
        return self.tree.parents[child] if self.drawn_from is None else self.drawn_from[child]

    def verdict(self, node: int, token: int) -> Verdict:
        """The path to `node` is accepted and `token` follows it."""
        return Verdict(tuple(self.tree.path(node)), token, bonus=not self.tree.children[node])


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRuleOptions:
    """Options of a rule that has none."""


def make_case(packed: PackedDrafts, i: int, p: Tensor, coins: Coins) -> Case:
    """Draft i of the pass, which is not None. Raises `CapabilityError` if its q does not fit p."""
    check_shape(packed, i, p)
    draft, tree = packed.drafts[i], packed.trees[i]
    assert draft is not None and tree is not None
    distributions = p[packed.node_slice(i)]
    q = None if draft.q is None else draft.q.to(distributions)
    rows = None if draft.drawn_from is None else draft.drawn_from.tolist()
    return Case(packed.seqs[i], tree, distributions, q, rows, coins, draft.confidence, draft.continuation)


def follow_draws(case: Case) -> Verdict:
    """The target's own keyed draw at each node, then on to the child that is this token; of equal ones the elder.

    What is emitted does not depend on the guess.
    """
    node, depth = 0, 0
    while True:
        token = case.coins.draw(case.p[node], depth)
        if (child := case.tree.child(node, token)) is None:
            return case.verdict(node, token)
        node, depth = child, depth + 1


def check_shape(packed: PackedDrafts, i: int, p: Tensor) -> None:
    """Raise `CapabilityError` if the q of draft i has not one row a node, or other rows that its nodes name."""
    draft = packed.drafts[i]
    if draft is None or draft.q is None:
        return
    wanted = (packed.node_starts[i + 1] - packed.node_starts[i], p.shape[-1])
    if draft.q.shape[1:] != wanted[1:] or (draft.q.shape != wanted and draft.drawn_from is None):
        raise CapabilityError(
            f"the draft of sequence {packed.seqs[i].id} brings q of shape {list(draft.q.shape)} for target "
            f"distributions of shape {list(wanted)}: a drafter must give one row a node over the target's vocabulary"
        )


def read_round(packed: PackedDrafts, p: Tensor) -> list[int]:
    """The one time in a round that the host waits for a GPU: is p a distribution, what was drafted, what is best at
    each node.

    Returns the most probable token at each of the M nodes, and hands the trees their tokens.
    """
    drafted = packed.tokens if packed.tokens.device == p.device else packed.tokens[:0].to(p.device)
    finite = p.sum().isfinite().long()[None]
    told: list[int] = torch.cat([finite, drafted, p.argmax(-1)]).tolist()
    if not told[0]:
        check_numbers(packed, p)
    if len(drafted):
        for i, tree in enumerate(packed.trees):
            if tree is not None:
                first = 1 + packed.row_starts[i] + packed.num_certain[i]
                tree.take(told[first : 1 + packed.row_starts[i + 1]])
    return told[1 + len(drafted) :]


def check_numbers(packed: PackedDrafts, p: Tensor) -> None:
    """Raise `NumericsError` if any entry is NaN or infinite. One sum shows it; only then look for it."""
    if p.numel() == 0 or math.isfinite(float(p.sum())):
        return
    row = int((~p.isfinite().all(-1)).nonzero()[0])
    i = next(i for i, stop in enumerate(packed.node_starts[1:]) if row < stop)
    raise NumericsError(
        f"the target's distribution at node {row - packed.node_starts[i]} of sequence {packed.seqs[i].id} is not "
        "finite: the model produced NaN or infinite logits; check its weights, or load it in float32"
    )
