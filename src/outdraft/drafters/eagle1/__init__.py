"""EAGLE-1: a one-layer network extrapolates the target's last feature; a static tree, or EAGLE-2's dynamic one.

Li et al., "EAGLE: speculative sampling requires rethinking feature uncertainty", 2024, https://arxiv.org/abs/2401.15077.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.shared.features.drafter import feature_method
from outdraft.drafters.shared.features.last_feature import load_last_feature
from outdraft.drafters.shared.features.static_tree import TreeOptions

METHOD = feature_method(
    "eagle1",
    load_last_feature,
    summary="EAGLE-1: a layer extrapolates the target's last feature; a static tree, or EAGLE-2's dynamic one",
    options=TreeOptions,
    paper=arxiv("2401.15077", "EAGLE: speculative sampling requires rethinking feature uncertainty"),
    also_called=("eagle",),
)
