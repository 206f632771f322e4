"""Train EAGLE-1's network by HASS: aligned with its own features, and with the target's likeliest tokens.

Zhang et al., "Learning harmonized representations for speculative sampling", 2024, https://arxiv.org/abs/2408.15766:

    alignment    three forwards; the n-th reads what the one before made of the last n - 1 positions, as in drafting
    objective    the cross-entropy over the target's ten likeliest tokens (weight 1), smooth L1 distance of features
                 (1), soft cross-entropy over all tokens (0.1)

The gradient goes through all forwards. What is saved is a network in EAGLE-1's layout.
"""

from dataclasses import dataclass
from pathlib import Path

from outdraft.core.learner import LearnMethod
from outdraft.drafters.shared.features.last_feature import LastFeatureNet, save_last_feature
from outdraft.drafters.shared.features.last_feature_learn import last_feature_to_train, new_last_feature
from outdraft.drafters.shared.features.learn import FeatureLearner, falling
from outdraft.drafters.shared.features.new import like_target
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class HassLearning:
    """The network's shape, and how it is aligned. A size of 0 is the target's own."""

    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    bias: bool = True  # of fc
    num_steps: int = 3  # aligned forwards
    decay: float = 1.0  # weight of a forward against the one before
    noise: float = 0.2  # width of the noise on features in a text of 512 tokens

    def __post_init__(self) -> None:
        check_range(self, "num_heads", "num_kv_heads", "head_dim", "intermediate_size", least=0)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "decay", least=0.0, most=1.0)
        check_range(self, "noise", least=0.0, most=1000.0)


def _learner(net: LastFeatureNet, target: Decoder, options: HassLearning) -> FeatureLearner:
    return FeatureLearner(
        net, target, lambda place: save_last_feature(net, place, target.dtype),
        weights=falling(options.num_steps, options.decay), extrapolates=True,
        noise=options.noise,
    )  # fmt: skip


def new(options: HassLearning, target: Decoder, seed: int) -> FeatureLearner:
    """A network to be trained, drawn from `seed`, with layers of the target's sizes where the options name none."""
    layers = like_target(
        target.config, num_heads=options.num_heads, num_kv_heads=options.num_kv_heads, head_dim=options.head_dim,
        intermediate_size=options.intermediate_size,
    )  # fmt: skip
    return _learner(new_last_feature(target, seed, bias=options.bias, layers=layers), target, options)


def load(options: HassLearning, target: Decoder, directory: Path) -> FeatureLearner:
    """A network that was trained before: an EAGLE-1 network, as HASS begins with one in the paper."""
    return _learner(last_feature_to_train(directory, target), target, options)


# Its files are EAGLE-1's, so it needs no sign of its own in them, and what inflates those inflates these.
LEARN = LearnMethod(
    summary="EAGLE-1's network by HASS: on its own features, and on the target's likeliest tokens",
    options=HassLearning, new=new, load=load, drafts={"width": 1, "sample": "match"}, hands_states=True,
    loss={"top_cross_entropy": 1.0, "smooth_l1": 1.0, "soft_cross_entropy": 0.1},
)  # fmt: skip
