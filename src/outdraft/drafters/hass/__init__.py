"""HASS: EAGLE-1's network, trained on its own features and on the target's likeliest tokens.

Zhang et al., "Learning harmonized representations for speculative sampling", 2024, https://arxiv.org/abs/2408.15766.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.shared.features.drafter import feature_method
from outdraft.drafters.shared.features.last_feature import load_last_feature

METHOD = feature_method(
    "hass",
    load_last_feature,
    summary="EAGLE-1's network trained by HASS: aligned with its own features and with the target's likeliest tokens",
    paper=arxiv("2408.15766", "Learning harmonized representations for speculative sampling"),
)
