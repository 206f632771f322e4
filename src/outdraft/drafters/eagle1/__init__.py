"""EAGLE-1: a one-layer network extrapolates the target's last feature; a static tree, or EAGLE-2's dynamic one.

Li et al., "EAGLE: speculative sampling requires rethinking feature uncertainty", 2024, https://arxiv.org/abs/2401.15077.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.eagle1.drafter import build
from outdraft.drafters.shared.features.static_tree import TreeOptions

METHOD = DrafterMethod(
    name="eagle1",
    summary="EAGLE-1: a layer extrapolates the target's last feature; a static tree, or EAGLE-2's dynamic one",
    build=build,
    options=TreeOptions,
    paper=Paper(
        title="EAGLE: speculative sampling requires rethinking feature uncertainty",
        year=2024,
        link="https://arxiv.org/abs/2401.15077",
    ),
    also_called=("eagle",),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
