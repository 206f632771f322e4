r"""What became of a round's draft, for people who want to see it: of requests with `return_draft_tree` alone.

        0  pending            status of a node: accepted (1, 2), rejected (3), unreached (4, 5), probe
       / \
      1   4                   a walk from the root tries the children of a node in drawing order, and goes on to the one
     / \   \                  that it accepts; where it accepts none, all of them are rejected, and the target's own
    2   3   5                 token ends the round
"""

from dataclasses import dataclass
from enum import StrEnum

from outdraft.core.draft import Draft, HostTree, Role
from outdraft.core.verdict import Verdict


class Status(StrEnum):
    """What became of a node."""

    PENDING = "pending"  # the root, which was written before
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNREACHED = "unreached"  # below a rejected node, or behind a sibling that was accepted
    PROBE = "probe"  # never acceptable


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTree:
    """Nodes in the order of the draft: a parent precedes its children. `token` ends the round: the target's own."""

    tokens: tuple[int, ...]  # [N]
    parents: tuple[int, ...]  # [N], -1 of the root
    statuses: tuple[Status, ...]  # [N]
    confidence: tuple[float, ...] | None  # [N] the drafter's own probability of each node, where it reports one
    token: int
    is_bonus: bool  # the whole path was accepted to a leaf
    drafted_by: str = ""  # the drafter, by name; "" where nothing was drafted


def tell_tree(draft: Draft, tree: HostTree, verdict: Verdict) -> DraftTree:
    """What the rule made of this draft."""
    roles = draft.roles.tolist() if draft.roles is not None else [Role.VERIFY] * draft.num_nodes
    statuses = [Status.PROBE if role == Role.PROBE else Status.UNREACHED for role in roles]
    statuses[0] = Status.PENDING
    for node, goes_on in zip((0, *verdict.path), (*verdict.path, None), strict=True):
        for child in tree.children[node]:
            if child == goes_on:
                statuses[child] = Status.ACCEPTED
                break  # the siblings behind it were not asked about
            statuses[child] = Status.REJECTED
    return DraftTree(
        tokens=tuple(tree.tokens),
        parents=tuple(tree.parents),
        statuses=tuple(statuses),
        confidence=tuple(draft.confidence.tolist()) if draft.confidence is not None else None,
        token=verdict.token,
        is_bonus=verdict.bonus,
    )
