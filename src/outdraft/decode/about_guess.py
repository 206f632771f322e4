"""What an event tells of a guess: how much was offered, how far the path went, and what the drafter had said of it."""

from typing import Any

from outdraft.core.draft import Draft, HostTree, Role
from outdraft.core.verdict import Verdict


def about_guess(draft: Draft, tree: HostTree, verdict: Verdict) -> dict[str, Any]:
    """Fields of `StepEvent`, for a guess of more than the pending token."""
    path, depths, siblings = verdict.path, tree.depths[1:], tree.children[0]
    if draft.roles is not None:
        depths = [depth for depth, role in zip(depths, draft.roles[1:].tolist(), strict=True) if role == Role.VERIFY]
    choices = []
    for child in path:
        choices.append((siblings.index(child), len(siblings)))
        siblings = tree.children[child]
    if siblings:
        choices.append((len(siblings), len(siblings)))
    judged = [*path, *siblings[:1]]
    return {
        "num_draft_tokens": len(depths),
        "draft_depth": max(depths, default=0),
        "confidences": tuple(draft.confidence[judged].tolist()) if draft.confidence is not None else (),
        "choices": tuple(choices),
        "num_accepted": len(path),
        "rejected": bool(depths) and not verdict.bonus,
    }
