"""Train Amphista's layers, slots and heads on a frozen target: all slots of a row at once.

Li et al., "Amphista", 2024, https://arxiv.org/abs/2406.13170: the cross-entropy of the text's tokens
(`--loss cross_entropy=1`), a head weighing `decay` of the one before; ours by default the target's whole distribution.
"""

from dataclasses import dataclass

from outdraft.drafters.amphista.net import AmphistaNet
from outdraft.drafters.shared.heads.layers import stem_sizes
from outdraft.drafters.shared.heads.learn import HeadLearner, HeadLearning, learn_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class AmphistaLearning(HeadLearning):
    """How many heads there are, what they see of each other, and how much each weighs."""

    num_heads: int = 4  # tokens that are guessed
    num_layers: int = 2  # that adapt the target's states; the last one reads the pending token
    bidirectional: bool = True  # the slots see each other; false: each itself alone, with as many parameters
    own_projections: bool = True  # False: the target's head stands in for them, and the heads are small


LEARN = learn_heads(
    AmphistaNet,
    AmphistaLearning,
    lambda options, known: {
        "num_heads": options.num_heads,
        "bidirectional": options.bidirectional,
        "own_projections": options.own_projections,
        **stem_sizes(known, options.num_layers),
    },
    lambda net, target, options, seed, directory: HeadLearner(net, target, options),
    summary="heads on the target's last state that see each other before they guess",
)
