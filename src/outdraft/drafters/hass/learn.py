"""Train EAGLE-1's network by HASS: aligned with its own features, and with the target's likeliest tokens.

Zhang et al., "Learning harmonized representations for speculative sampling", 2024, https://arxiv.org/abs/2408.15766:

    alignment    three forwards; the n-th reads what the one before made of the last n - 1 positions, as in drafting
    objective    the cross-entropy over the target's ten likeliest tokens (weight 1), smooth L1 distance of features
                 (1), soft cross-entropy over all tokens (0.1)

The gradient goes through all forwards. What is saved is a network in EAGLE-1's layout.
"""

from dataclasses import dataclass

from outdraft.drafters.shared.features.last_feature_learn import LastFeatureLearning, learn_last_feature
from outdraft.drafters.shared.features.learn import falling
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class HassLearning(LastFeatureLearning):
    """The network's shape, and how it is aligned. A size of 0 is the target's own."""

    num_steps: int = 3  # aligned forwards
    decay: float = 1.0  # weight of a forward against the one before

    def __post_init__(self) -> None:
        LastFeatureLearning.__post_init__(self)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "decay", least=0.0, most=1.0)


# Its files are EAGLE-1's, so it needs no sign of its own in them, and what inflates those inflates these.
LEARN = learn_last_feature(
    HassLearning,
    lambda options: falling(options.num_steps, options.decay),
    summary="EAGLE-1's network by HASS: on its own features, and on the target's likeliest tokens",
    loss={"top_cross_entropy": 1.0, "smooth_l1": 1.0, "soft_cross_entropy": 0.1},
)
