"""Medusa: several heads on the target's last state each guess one of the next tokens.

Cai et al., "Medusa: simple LLM inference acceleration framework with multiple decoding heads", 2024,
https://arxiv.org/abs/2401.10774.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.medusa.drafter import build
from outdraft.drafters.shared.heads.config import HeadOptions, head_shape

METHOD = DrafterMethod(
    name="medusa",
    summary="heads on the target's last state, each of which guesses one of the next tokens; a chain or a tree",
    build=build,
    options=HeadOptions,
    paper=Paper(
        title="Medusa: simple LLM inference acceleration framework with multiple decoding heads",
        year=2024,
        link="https://arxiv.org/abs/2401.10774",
    ),
    shape_of=head_shape,
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
