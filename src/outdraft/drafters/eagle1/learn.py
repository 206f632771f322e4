"""Train EAGLE-1's network on a frozen target: features that come near the target's, and the target's distribution.

Li et al., "EAGLE", 2024, https://arxiv.org/abs/2401.15077: smooth L1 distance of features, weight 1, and soft
cross-entropy, weight 0.1, one step; uniform noise on the features that are read. An evaluation looks further ahead.
"""

from outdraft.drafters.eagle1.formats import FORMATS
from outdraft.drafters.shared.features.last_feature import ARCHITECTURE
from outdraft.drafters.shared.features.last_feature_learn import LastFeatureLearning, inflate, learn_last_feature

LEARN = learn_last_feature(
    LastFeatureLearning,
    lambda options: (1.0,),
    summary="EAGLE-1: a layer that extrapolates the target's last feature, by the distance of features and one step",
    loss={"smooth_l1": 1.0, "soft_cross_entropy": 0.1},
    model_type=ARCHITECTURE,
    formats=FORMATS,
    inflate=inflate,
)
