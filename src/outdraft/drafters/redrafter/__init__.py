"""ReDrafter: one small recurrent head on the target's last state, applied once for each token; a beam of its guesses.

Cheng et al., "Recurrent drafter for fast speculative decoding in large language models", 2024,
https://arxiv.org/abs/2403.09919.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.redrafter.drafter import build
from outdraft.drafters.shared.heads.config import HeadOptions, head_shape

METHOD = DrafterMethod(
    name="redrafter",
    summary="one small recurrent head on the target's last state, applied once for each token; a chain or a beam",
    build=build,
    options=HeadOptions,
    paper=Paper(
        title="Recurrent drafter for fast speculative decoding in large language models",
        year=2024,
        link="https://arxiv.org/abs/2403.09919",
    ),
    shape_of=head_shape,
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
