"""Train the layers of blockwise parallel decoding on a frozen target: layer i learns what comes i + 1 tokens further.

Stern, Shazeer and Uszkoreit, "Blockwise parallel decoding", 2018, https://arxiv.org/abs/1811.03115.
"""

from dataclasses import dataclass

from outdraft.drafters.blockwise.net import BlockwiseNet
from outdraft.drafters.shared.heads.learn import HeadLearner, HeadLearning, learn_heads
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockwiseLearning(HeadLearning):
    """How many tokens are guessed, and how wide the layers are."""

    num_heads: int = 4  # tokens that are guessed; a block of the paper has one more, the target's own
    inner_size: int = 0  # of the feed-forward layers; 0: the target's
    decay: float = 1.0  # weight of a layer against the one before

    def __post_init__(self) -> None:
        HeadLearning.__post_init__(self)
        check_range(self, "inner_size", least=0)


LEARN = learn_heads(
    BlockwiseNet,
    BlockwiseLearning,
    lambda options, known: {
        "num_heads": options.num_heads,
        "inner_size": options.inner_size or known.intermediate_size,
        "own_projections": False,
    },
    lambda net, target, options, seed, directory: HeadLearner(net, target, options),
    summary="small networks on the target's last state, read by the target's own head",
)
