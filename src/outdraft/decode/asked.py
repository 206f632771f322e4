"""What requests ask of their own drafting, carried out: the policy's budget with the request's arm and depth in it, and
the rule that a request names in the place of the engine's own.

    policy      budget(arm 0, depth 4)  ->  as_asked  ->  budget(arm 2, depth 4)      method
                                                          budget(arm 2, depth 8)      method, policy "fixed"
    batch       d1 d2 d3 d4             ->  own(d1 d3), rule a(d2), rule b(d4)        verifier

A rule is called with None in the place of other rules' drafts, so each judges its own as if they were alone.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field, replace

from torch import Tensor

from outdraft.core.coins import Coins
from outdraft.core.packing import PackedDrafts
from outdraft.core.policy import Budget
from outdraft.core.registry import find
from outdraft.core.request import Request
from outdraft.core.sequence import Sequence
from outdraft.core.verdict import Verdict
from outdraft.core.verifier import Verifier


def as_asked(seq: Sequence, planned: Budget) -> Budget:
    """The policy's budget with what the request has decided."""
    asked = seq.settled
    if asked.arm is None and asked.depth is None:
        return planned
    arm = planned.arm if asked.arm is None else asked.arm
    depth = planned.depth if asked.depth is None else max(0, min(asked.depth, seq.room - 1))
    resting = (planned.resting | asked.resting) - ({arm} if depth else set())
    if asked.depth is None:
        return replace(planned, arm=arm, resting=resting)
    return Budget(depth=depth, arm=arm, resting=resting)


@dataclass(slots=True, eq=False)
class RulesByRequest:
    """The engine's own rule, and beside it those that requests have named, each built when it is first asked for."""

    own: Verifier
    lossless: bool  # of the engine's own
    _others: dict[str, Verifier] = field(default_factory=dict, init=False)

    def of(self, name: str | None) -> Verifier:
        """The rule of this name, with its default options; None: the engine's own."""
        if name is None:
            return self.own
        if name not in self._others:
            method = find("verifier", name)
            self._others[name] = method.build(method.options())
        return self._others[name]

    def couples(self, request: Request) -> bool:
        """By the engine's own rule."""
        return self.own.couples(request)

    def __call__(self, packed: PackedDrafts, p: Tensor, coins: Seq[Coins]) -> list[Verdict]:
        """One verdict for each draft that is not None, by the rule of its request."""
        judged = [i for i, draft in enumerate(packed.drafts) if draft is not None]
        asked = [packed.seqs[i].settled.rule for i in judged]
        if len(set(asked)) <= 1:
            return self.of(asked[0] if asked else None)(packed, p, coins)
        verdicts: dict[int, Verdict] = {}
        for name in dict.fromkeys(asked):
            own = {i: each for i, each, rule in zip(judged, coins, asked, strict=True) if rule == name}
            part = replace(
                packed,
                drafts=tuple(draft if i in own else None for i, draft in enumerate(packed.drafts)),
                trees=tuple(tree if i in own else None for i, tree in enumerate(packed.trees)),
            )
            verdicts.update(zip(own, self.of(name)(part, p, list(own.values())), strict=True))
        return [verdicts[i] for i in judged]
