"""Train an EAGLE-3 network on a frozen target, on its own outputs too (training-time test).

Li et al., "EAGLE-3", 2025, https://arxiv.org/abs/2503.01840: seven steps, each 0.8 of the one before, no distance of
features. The distribution that is learned is the target's, renormalised inside the draft's vocabulary. What is saved is
a directory in the published layout (`files.py`).
"""

from dataclasses import dataclass
from functools import partial

from outdraft.drafters.eagle3.formats import FORMATS, KIND, save_eagle3
from outdraft.drafters.shared.features.fused.learn import FusedLearning, inflate_fused, new_fused, trained_before
from outdraft.drafters.shared.features.learn import falling, learn_features
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Learning(FusedLearning):
    """The network's shape, and how deep it is unrolled. A size of 0 is the target's own."""

    norm_output: bool = False
    num_steps: int = 4  # unrolled steps; the paper's: 7
    decay: float = 0.8  # weight of a step against the one before

    def __post_init__(self) -> None:
        FusedLearning.__post_init__(self)
        check_range(self, "num_steps", least=1, most=32)
        check_range(self, "decay", least=0.0, most=1.0)


LEARN = learn_features(
    Eagle3Learning,
    lambda options, target, seed: new_fused(options.config(target, norm_output=options.norm_output), target, seed),
    partial(trained_before, KIND),
    save_eagle3,
    lambda options: falling(options.num_steps, options.decay),
    summary="the published EAGLE-3 and 3.1: own head, perhaps of fewer tokens, unrolled on its own outputs",
    model_type=KIND.model_type,
    formats=FORMATS,
    inflate=partial(inflate_fused, KIND),
)
