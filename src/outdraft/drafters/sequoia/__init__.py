"""Sequoia: the tree shape that is best for a measured acceptance rate by rank and a measured cost of a pass.

Chen et al., "Sequoia: scalable, robust, and hardware-aware speculative decoding", 2024,
https://arxiv.org/abs/2402.12374.
"""

from outdraft.core.registry import Method, Paper
from outdraft.drafters.sequoia.drafter import SequoiaOptions, build, describe

METHOD = Method(
    name="sequoia",
    kind="drafter",
    summary="a smaller model's tree, in the shape that is best for measured acceptance and measured cost",
    build=build,
    options=SequoiaOptions,
    paper=Paper(
        title="Sequoia: scalable, robust, and hardware-aware speculative decoding",
        year=2024,
        link="https://arxiv.org/abs/2402.12374",
    ),
    describe=describe,
    shapes=("tree",),
)
