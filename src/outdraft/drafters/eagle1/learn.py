"""Train EAGLE-1's network on a frozen target: features that come near the target's, and the target's distribution.

Li et al., "EAGLE", 2024, https://arxiv.org/abs/2401.15077: smooth L1 distance of features, weight 1, and soft
cross-entropy, weight 0.1, one step; uniform noise on the features that are read. An evaluation looks further ahead.
"""

from dataclasses import dataclass
from pathlib import Path

from outdraft.core.learner import LearnMethod
from outdraft.drafters.eagle1.formats import FORMATS
from outdraft.drafters.shared.features.last_feature import ARCHITECTURE, LastFeatureNet, save_last_feature
from outdraft.drafters.shared.features.last_feature_learn import inflate, last_feature_to_train, new_last_feature
from outdraft.drafters.shared.features.learn import FeatureLearner
from outdraft.drafters.shared.features.new import like_target
from outdraft.models.networks.base import Decoder
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle1Learning:
    """The network's shape, and what is asked of its features. A size of 0 is the target's own."""

    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    intermediate_size: int = 0
    bias: bool = True  # of fc
    noise: float = 0.2  # width of the noise on features in a text of 512 tokens

    def __post_init__(self) -> None:
        check_range(self, "num_heads", "num_kv_heads", "head_dim", "intermediate_size", least=0)
        check_range(self, "noise", least=0.0, most=1000.0)


def _learner(net: LastFeatureNet, target: Decoder, options: Eagle1Learning) -> FeatureLearner:
    return FeatureLearner(
        net, target, lambda place: save_last_feature(net, place, target.dtype), weights=(1.0,), extrapolates=True,
        noise=options.noise,
    )  # fmt: skip


def new(options: Eagle1Learning, target: Decoder, seed: int) -> FeatureLearner:
    """A network to be trained, drawn from `seed`, with layers of the target's sizes where the options name none."""
    layers = like_target(
        target.config, num_heads=options.num_heads, num_kv_heads=options.num_kv_heads, head_dim=options.head_dim,
        intermediate_size=options.intermediate_size,
    )  # fmt: skip
    return _learner(new_last_feature(target, seed, bias=options.bias, layers=layers), target, options)


def load(options: Eagle1Learning, target: Decoder, directory: Path) -> FeatureLearner:
    """A network that was trained before, here or elsewhere."""
    return _learner(last_feature_to_train(directory, target), target, options)


LEARN = LearnMethod(
    summary="EAGLE-1: a layer that extrapolates the target's last feature, by the distance of features and one step",
    options=Eagle1Learning, new=new, load=load, drafts={"width": 1, "sample": "match"}, hands_states=True,
    loss={"smooth_l1": 1.0, "soft_cross_entropy": 0.1}, model_type=ARCHITECTURE, formats=FORMATS,
    inflate=inflate,
)  # fmt: skip
