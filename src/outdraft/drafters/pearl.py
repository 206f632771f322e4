"""Draft and verify at the same time: while the target judges a block, the draft writes the next one.

Liu et al., "PEARL: parallel speculative decoding with adaptive draft length", 2024, https://arxiv.org/abs/2408.11850.

    pre-verify    the target reads the pending token alone; meanwhile k + 1 tokens are drafted behind it. If the first
                  is the target's token, the others are the next block.
    post-verify   the target reads a block; meanwhile k + 1 tokens are drafted behind its end, as if all were right. If
                  all are, and the token after them is the first of the new ones, the others are the next block.

Without a seed the rule keeps the first new token, drawn from q, with min(1, p / q) (`Draft.continuation`). So a round
costs the longer of drafting and judging, not their sum, and a wrong block costs a round without a draft.
Data in: sequences and an inner drafter; data out: chains, each drafted during the pass before.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from outdraft.core.drafter import Drafter
from outdraft.core.method import DrafterMethod, arxiv
from outdraft.drafters.shared.composed.ahead import AheadDrafter, Standing, build_rewinding
from outdraft.models.networks.port import TargetPort


@dataclass(frozen=True, slots=True, kw_only=True)
class PearlOptions:
    """Which drafter works ahead, and its options."""

    # the drafter that works ahead: a name, or {"method": NAME, OPTION: VALUE}
    drafter: str | Mapping[str, Any] = field(default_factory=lambda: {"method": "draft_model"})


def _block(standing: Standing, num_proposed: int) -> int:
    """One block and the token before it, behind what is under judgement."""
    return num_proposed + standing.budget.depth + 1 - len(standing.guess.tokens)


def over(inner: Drafter) -> AheadDrafter:
    """Over this inner drafter."""
    return AheadDrafter(inner, _block, patient=True)


METHOD: DrafterMethod[PearlOptions, TargetPort, AheadDrafter] = DrafterMethod(
    name="pearl",
    summary="the next block is drafted while the target judges this one",
    build=lambda options, port: over(build_rewinding(options.drafter, port, "pearl")),
    options=PearlOptions,
    paper=arxiv("2408.11850", "PEARL: parallel speculative decoding with adaptive draft length"),
)
