"""Amphista: heads on the target's last state that see each other before they guess.

Li et al., "Amphista: bi-directional multi-head decoding for accelerating LLM inference", 2024,
https://arxiv.org/abs/2406.13170.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.amphista.drafter import build
from outdraft.drafters.shared.heads.config import HeadOptions, head_shape

METHOD = DrafterMethod(
    name="amphista",
    summary="heads on the target's last state that see each other before they guess; a chain or a tree",
    build=build,
    options=HeadOptions,
    paper=Paper(
        title="Amphista: bi-directional multi-head decoding for accelerating LLM inference",
        year=2024,
        link="https://arxiv.org/abs/2406.13170",
    ),
    shape_of=head_shape,
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
