"""Token recycling: keep the best successors that the target computed for every token, and guess from them.

Luo et al., "Turning trash into treasure: accelerating inference of large language models with token recycling", 2024,
https://arxiv.org/abs/2408.08696.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.recycling.drafter import RecyclingOptions, build

METHOD = DrafterMethod(
    name="recycling",
    summary="a tree from each token's last seen best successors, kept across requests (no model)",
    build=build,
    options=RecyclingOptions,
    paper=Paper(
        title="Turning trash into treasure: accelerating inference of large language models with token recycling",
        year=2024,
        link="https://arxiv.org/abs/2408.08696",
    ),
    shape_of=lambda options: "tree",
)
