"""SWIFT: a search during decoding for the sublayers of the target that a draft can skip.

Xia et al., "SWIFT: on-the-fly self-speculative decoding for LLM inference acceleration", 2024,
https://arxiv.org/abs/2410.06916.
"""

from collections.abc import Mapping
from typing import Any

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.swift.drafter import SwiftDrafter, SwiftOptions, build


def _describe(drafter: SwiftDrafter) -> Mapping[str, Any]:
    skip = drafter.search.best
    return {"first_skip_attention": sorted(skip.attention), "first_skip_mlp": sorted(skip.mlp)}


METHOD = DrafterMethod(
    name="swift",
    summary="the target without some of its sublayers; a search beside the text finds which",
    build=build,
    options=SwiftOptions,
    paper=Paper(
        title="SWIFT: on-the-fly self-speculative decoding for LLM inference acceleration",
        year=2024,
        link="https://arxiv.org/abs/2410.06916",
    ),
    describe=_describe,
    shape_of=lambda options: "tree" if options.siblings else "chain",
    forms={"chain": {"siblings": False}, "tree": {"siblings": True}},
)
