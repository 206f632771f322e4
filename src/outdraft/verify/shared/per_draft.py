"""The wrapper that turns a function of one `Case` into a `Verifier`.

    PackedDrafts, p [M, V], coins
        the best token at each of the M nodes, read once      greedy requests, under a rule that follows it
        one `Case` for each other draft that is not None      the rule's own function
    -> one `Verdict` each, in the drafts' order

The checks that every rule needs are made once: p holds numbers, q has p's shape, every draft has its coins.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import KW_ONLY, dataclass
from typing import Literal

from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.packing import PackedDrafts
from outdraft.core.request import Request
from outdraft.core.verdict import Verdict
from outdraft.kernels.decoder.choice import best_tokens
from outdraft.verify.shared.case import Case, check_numbers, check_shape, make_case, read_round


@dataclass(eq=False)
class PerDraft:
    """A rule that judges each draft by itself.

    `coupled`: whether the output is the target's own keyed draw; "seeded": of sampled requests that name a seed.
    `follows_best`: greedy requests follow the target's best token, and `judge` sees the others alone.
    """

    judge: Callable[[Case], Verdict]
    _: KW_ONLY
    lossless: bool = True
    coupled: bool | Literal["seeded"] = False
    follows_best: bool = False

    def couples(self, request: Request) -> bool:
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
            if self.follows_best and packed.seqs[i].is_greedy:
                best = best or p.argmax(-1).tolist()
                verdicts.append(_follow_best(packed, i, p, best))
            else:
                verdicts.append(self.judge(make_case(packed, i, p, own)))
        return verdicts


def read_best(packed: PackedDrafts, p: Tensor) -> list[int] | None:
    """The most probable token at each of the M nodes; None where the kernels do not find it. See `read_round`."""
    best = best_tokens(p) if p.device.type == "cpu" else read_round(packed, p)
    if best is None:
        check_numbers(packed, p)
    return best


def _follow_best(packed: PackedDrafts, i: int, p: Tensor, best: list[int]) -> Verdict:
    """Walk while a child is the best token. `best`: one token for each of the M nodes of the pass."""
    draft, tree, first = packed.drafts[i], packed.trees[i], packed.node_starts[i]
    assert draft is not None and tree is not None
    if draft.q is not None:
        check_shape(packed, i, p)
    own = best[first : packed.node_starts[i + 1]]
    path = tree.walk(own)
    last = path[-1] if path else 0
    return Verdict(tuple(path), own[last], bonus=not tree.children[last])
