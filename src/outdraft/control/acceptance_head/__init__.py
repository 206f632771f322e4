"""SpecDec++: a small head on the drafter's hidden state says when to stop drafting.

Huang, Guo and Wang, "SpecDec++: boosting speculative decoding via adaptive candidate lengths", 2024,
https://arxiv.org/abs/2405.19715. Drafting ends where the chance that at least one drafted token is rejected exceeds a
threshold.
"""

from outdraft.control.acceptance_head.policy import AcceptanceHeadOptions, build
from outdraft.core.method import PolicyMethod, arxiv

METHOD = PolicyMethod(
    name="acceptance_head",
    summary="draft until a head on the drafter's hidden states expects a rejection",
    build=build,
    options=AcceptanceHeadOptions,
    paper=arxiv("2405.19715", "SpecDec++: boosting speculative decoding via adaptive candidate lengths"),
)
