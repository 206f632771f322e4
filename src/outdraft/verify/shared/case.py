"""`Case`: one draft that is judged, and the wrapper that turns a function of one case into a `Verifier`.

    PackedDrafts, p [M, V], coins
        the best token at each of the M nodes, read once      greedy requests, under a rule that follows it
        one `Case` for each other draft that is not None      the rule's own function
    -> one `Verdict` each, in the drafts' order

The checks that every rule needs are made here, once: p holds numbers, q has p's shape, every draft has its coins.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.draft import Continuation, HostTree
from outdraft.core.packing import PackedDrafts
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.verdict import Verdict
from outdraft.kernels.decoder.choice import best_tokens
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
class NoOptions:
    """Options of a rule that has none."""


class PerDraft:
    """A rule that judges each draft by itself.

    `coupled`: whether the output is the target's own keyed draw; "seeded": of sampled requests that name a seed.
    `follows_best`: greedy requests follow the target's best token, and `judge` sees the others alone.
    """

    def __init__(
        self,
        judge: Callable[[Case], Verdict],
        *,
        lossless: bool = True,
        coupled: bool | Literal["seeded"] = False,
        follows_best: bool = False,
    ) -> None:
        self.judge = judge
        self.lossless = lossless
        self.coupled = coupled
        self.follows_best = follows_best

    def couples(self, request: Request) -> bool:
        """Whether the output is the target's own keyed draw."""
        if self.coupled == "seeded":
            return request.params.seed is not None and not request.params.greedy
        return self.coupled

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """One verdict for each draft that is not None.

        Raises `NumericsError` if p is no distribution, `CapabilityError` if q does not fit p.
        """
        best = read_best(packed, p)
        verdicts = []
        judged = [i for i, draft in enumerate(packed.drafts) if draft is not None]
        for i, own in zip(judged, coins, strict=True):
            if self.follows_best and packed.seqs[i].request.params.greedy:
                best = best or p.argmax(-1).tolist()
                verdicts.append(_follow_best(packed, i, p, best))
            else:
                verdicts.append(self.judge(make_case(packed, i, p, own)))
        return verdicts


def read_best(packed: PackedDrafts, p: Tensor) -> list[int] | None:
    """The most probable token at each of the M nodes; None where the kernels do not find it. See `read_round`."""
    best = best_tokens(p) if p.device.type == "cpu" else read_round(packed, p)
    if best is None:
        _check_numbers(packed, p)
    return best


def make_case(packed: PackedDrafts, i: int, p: Tensor, coins: Coins) -> Case:
    """Draft i of the pass, which is not None. Raises `CapabilityError` if its q does not fit p."""
    _check_shape(packed, i, p)
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


def _follow_best(packed: PackedDrafts, i: int, p: Tensor, best: list[int]) -> Verdict:
    """Walk while a child is the best token. `best`: one token for each of the M nodes of the pass."""
    _check_shape(packed, i, p)
    tree, first, node = packed.trees[i], packed.node_starts[i], 0
    assert tree is not None
    while (child := tree.child(node, best[first + node])) is not None:
        node = child
    return Verdict(tuple(tree.path(node)), best[first + node], bonus=not tree.children[node])


def read_round(packed: PackedDrafts, p: Tensor) -> list[int]:
    """The one time in a round that the host waits for a GPU: is p a distribution, what was drafted, what is best at
    each node.

    Returns the most probable token at each of the M nodes, and hands the trees their tokens.
    """
    drafted = packed.tokens if packed.tokens.device == p.device else packed.tokens[:0].to(p.device)
    finite = p.sum().isfinite().long()[None]
    told: list[int] = torch.cat([finite, drafted, p.argmax(-1)]).tolist()
    if not told[0]:
        _check_numbers(packed, p)
    if len(drafted):
        for i, tree in enumerate(packed.trees):
            if tree is not None:
                first = 1 + packed.row_starts[i] + packed.num_certain[i]
                tree.take(told[first : 1 + packed.row_starts[i + 1]])
    return told[1 + len(drafted) :]


def _check_shape(packed: PackedDrafts, i: int, p: Tensor) -> None:
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


def _check_numbers(packed: PackedDrafts, p: Tensor) -> None:
    """Raise `NumericsError` if any entry is NaN or infinite. One sum shows it; only then look for it."""
    if p.numel() == 0 or math.isfinite(float(p.sum())):
        return
    row = int((~p.isfinite().all(-1)).nonzero()[0])
    i = next(i for i, stop in enumerate(packed.node_starts[1:]) if row < stop)
    raise NumericsError(
        f"the target's distribution at node {row - packed.node_starts[i]} of sequence {packed.seqs[i].id} is not "
        "finite: the model produced NaN or infinite logits; check its weights, or load it in float32"
    )
