"""What an event tells of a guess: how much was offered, how far the path went, and what the drafter had said of it."""

from typing import Any

from outdraft.core.draft import Draft, HostTree, Role
from outdraft.core.verdict import Verdict


def about_guess(draft: Draft, tree: HostTree, verdict: Verdict) -> dict[str, Any]:
    """Fields of `StepEvent`, for a guess of more than the pending token."""
    path = verdict.path
    roles = draft.roles.tolist() if draft.roles is not None else [Role.VERIFY] * draft.num_nodes
    offered = [node for node in range(1, draft.num_nodes) if roles[node] == Role.VERIFY]
    walked = [tree.children[node] for node in (0, *path)]
    choices = [(siblings.index(child), len(siblings)) for siblings, child in zip(walked, path, strict=False)]
    if walked[-1]:
        choices.append((len(walked[-1]), len(walked[-1])))
    judged = [*path, *walked[-1][:1]]
    return {
        "num_draft_tokens": len(offered),
        "draft_depth": max((tree.depths[node] for node in offered), default=0),
        "confidences": tuple(draft.confidence[judged].tolist()) if draft.confidence is not None else (),
        "choices": tuple(choices),
        "num_accepted": len(path),
        "rejected": bool(offered) and not verdict.bonus,
    }
