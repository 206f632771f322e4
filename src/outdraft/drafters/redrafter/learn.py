"""Train ReDrafter's head on a frozen target: unrolled over the text's own tokens.

Cheng et al., "Recurrent drafter", 2024, https://arxiv.org/abs/2403.09919, which learns from the target's distribution
too (its distillation). A step weighs `decay` of the one before.
"""

from dataclasses import dataclass

from outdraft.drafters.redrafter.net import ReDrafterNet
from outdraft.drafters.shared.heads.learn import HeadLearner, HeadLearning, learn_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class ReDrafterLearning(HeadLearning):
    """How far it is unrolled, of which size it is, and how much a step weighs."""

    num_steps: int = 5  # tokens that are guessed
    num_layers: int = 2  # behind the recurrence: one that mixes, and residual ones
    own_projections: bool = True  # False: the target's head stands in for them, and the heads are small


LEARN = learn_heads(
    ReDrafterNet,
    ReDrafterLearning,
    lambda options, known: {
        "num_heads": options.num_steps,
        "num_layers": options.num_layers,
        "own_projections": options.own_projections,
    },
    lambda net, target, options, seed, directory: HeadLearner(net, target, options),
    summary="one small recurrent head on the target's last state, unrolled over the text",
)
