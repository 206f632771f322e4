"""Several drafters guess, and one tree of all their guesses is judged.

Miao et al., "SpecInfer: accelerating large language model serving with tree-based speculative inference and
verification", 2023, https://arxiv.org/abs/2305.09781.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.merge.drafter import MergeOptions, build, describe

METHOD = DrafterMethod(
    name="merge",
    summary="several drafters guess, and one tree of all their guesses is judged",
    build=build,
    options=MergeOptions,
    paper=Paper(
        title="SpecInfer: accelerating large language model serving with tree-based speculative inference and "
        "verification",
        year=2023,
        link="https://arxiv.org/abs/2305.09781",
    ),
    describe=describe,
    shape_of=lambda options: "tree",
)
