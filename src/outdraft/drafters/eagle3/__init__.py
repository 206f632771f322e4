"""EAGLE-3 in its published layout: a network with its own head over three of the target's states.

Li et al., "EAGLE-3: scaling up inference acceleration of large language models via training-time test", 2025,
https://arxiv.org/abs/2503.01840.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.eagle3.drafter import build
from outdraft.drafters.shared.features.options import FeatureOptions

METHOD = DrafterMethod(
    name="eagle3",
    summary="EAGLE-3 and 3.1 as published: a head of its own, perhaps of fewer tokens, on three of the target's states",
    build=build,
    options=FeatureOptions,
    paper=Paper(
        title="EAGLE-3: scaling up inference acceleration of large language models via training-time test",
        year=2025,
        link="https://arxiv.org/abs/2503.01840",
    ),
    also_called=("eagle",),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
