"""EAGLE: a one-layer network drafts at feature level, fed with the target's own hidden states.

Li et al., "EAGLE-3: scaling up inference acceleration of large language models via training-time test", 2025,
https://arxiv.org/abs/2503.01840 (features of several layers, no feature loss), over EAGLE-2, 2024,
https://arxiv.org/abs/2406.16858 (dynamic tree), and EAGLE, 2024, https://arxiv.org/abs/2401.15077.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.eagle.drafter import EagleOptions, build

METHOD = DrafterMethod(
    name="eagle",
    summary="a small network fed with the target's hidden states drafts a chain or a dynamic tree",
    build=build,
    options=EagleOptions,
    paper=Paper(
        title="EAGLE-3: scaling up inference acceleration of large language models via training-time test",
        year=2025,
        link="https://arxiv.org/abs/2503.01840",
    ),
    also_called=("eagle3",),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
