"""`Case`: one draft that is judged, and the wrapper that turns a function of one case into a `Verifier`.

PackedDrafts, p [M, V], coins  ->  one `Case` for each draft that is not None  ->  one `Verdict` each, in that order.
The checks that every rule needs are made here, once: p holds numbers, q has p's shape, every draft has its coins.
"""

import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass

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
    first: int  # where node 0 stands among the M nodes of the pass
    best: list[int] | None = None  # the most probable token at each of the M nodes, where they were read already
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
    """A rule that judges each draft by itself."""

    def __init__(self, judge: Callable[[Case], Verdict], *, lossless: bool = True, coupled: bool = False) -> None:
        self.judge = judge
        self.lossless = lossless
        self.coupled = coupled

    def couples(self, request: Request) -> bool:
        """Whether the output is the target's own keyed draw: a property of the rule here, not of the request."""
        return self.coupled

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """One verdict for each draft that is not None."""
        return [self.judge(case) for case in make_cases(packed, p, coins)]


def make_cases(packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Case]:
    """The drafts of one pass. Raises `NumericsError` if p is no distribution, `CapabilityError` if q does not fit p."""
    best = best_tokens(p) if p.device.type == "cpu" else read_round(packed, p)
    if best is None:
        _check_numbers(packed, p)
    judged = [i for i, draft in enumerate(packed.drafts) if draft is not None]
    cases = []
    for i, own in zip(judged, coins, strict=True):
        draft, tree, seq = packed.drafts[i], packed.trees[i], packed.seqs[i]
        assert draft is not None and tree is not None
        distributions = p[packed.node_slice(i)]
        q = draft.q
        if q is not None:
            if q.shape[1:] != distributions.shape[1:] or (q.shape != distributions.shape and draft.drawn_from is None):
                raise CapabilityError(
                    f"the draft of sequence {seq.id} brings q of shape {list(q.shape)} for target "
                    f"distributions of shape {list(distributions.shape)}: a drafter "
                    "must give one row a node over the target's vocabulary"
                )
            q = q.to(distributions)
        rows = None if draft.drawn_from is None else draft.drawn_from.tolist()
        first = packed.node_starts[i]
        cases.append(Case(seq, tree, distributions, q, rows, own, draft.confidence, first, best, draft.continuation))
    return cases


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
