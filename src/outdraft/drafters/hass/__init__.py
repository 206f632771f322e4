"""HASS: EAGLE-1's network, trained on its own features and on the target's likeliest tokens.

Zhang et al., "Learning harmonized representations for speculative sampling", 2024, https://arxiv.org/abs/2408.15766.
"""

from outdraft.core.method import DrafterMethod, Paper
from outdraft.drafters.hass.drafter import build
from outdraft.drafters.shared.features.options import FeatureOptions

METHOD = DrafterMethod(
    name="hass",
    summary="EAGLE-1's network trained by HASS: aligned with its own features and with the target's likeliest tokens",
    build=build,
    options=FeatureOptions,
    paper=Paper(
        title="Learning harmonized representations for speculative sampling",
        year=2024,
        link="https://arxiv.org/abs/2408.15766",
    ),
    shape_of=lambda options: "chain" if options.width == 1 else "tree",
    forms={"chain": {"width": 1}, "tree": {"width": 4}},
)
