"""Sequoia: the tree shape that is best for a measured acceptance rate by rank and a measured cost of a pass.

Chen et al., "Sequoia: scalable, robust, and hardware-aware speculative decoding", 2024,
https://arxiv.org/abs/2402.12374.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.sequoia.drafter import SequoiaOptions, build, describe

METHOD = DrafterMethod(
    name="sequoia",
    summary="a smaller model's tree, in the shape that is best for measured acceptance and measured cost",
    build=build,
    options=SequoiaOptions,
    paper=Paper(
        title="Sequoia: scalable, robust, and hardware-aware speculative decoding",
        year=2024,
        link="https://arxiv.org/abs/2402.12374",
    ),
    describe=describe,
    shape_of=lambda options: "tree",
)
