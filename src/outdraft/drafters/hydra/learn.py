"""Train Hydra's heads on a frozen target: head i reads the state of row r and the text's tokens r + 1 to r + i + 1.

Ankner et al., "Hydra", 2024, https://arxiv.org/abs/2402.05109. Hydra++ is `prefix_layer`, `num_layers=4`, `noise` and
the teacher's whole distribution as the loss, which is the default here. A head weighs `decay` of the one before.
"""

from dataclasses import dataclass

from outdraft.drafters.hydra.formats import FORMATS
from outdraft.drafters.hydra.net import HydraNet
from outdraft.drafters.shared.heads.layers import stem_sizes
from outdraft.drafters.shared.heads.learn import HeadLearner, HeadLearning, learn_heads


@dataclass(frozen=True, slots=True, kw_only=True)
class HydraLearning(HeadLearning):
    """How many heads there are, of which size, and how much each weighs."""

    num_heads: int = 4  # tokens that are guessed
    num_layers: int = 1  # of a head: one that mixes, and residual ones behind it; Hydra++: 4
    prefix_layer: bool = False  # a decoder layer over the target's last states, below the heads; Hydra++: true
    own_projections: bool = True  # False: the target's head stands in for them, and the heads are small


LEARN = learn_heads(
    HydraNet,
    HydraLearning,
    lambda options, known: {
        "num_heads": options.num_heads,
        "num_layers": options.num_layers,
        "own_projections": options.own_projections,
        **stem_sizes(known, int(options.prefix_layer)),
    },
    lambda net, target, options, seed, directory: HeadLearner(net, target, options),
    summary="heads on the target's last state, each of which knows the tokens before",
    formats=FORMATS,
)
