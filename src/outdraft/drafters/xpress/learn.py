"""Train xPress's network on a frozen target, behind the texts' own tokens: 0.1 cross-entropy and 0.9 total variation.

IBM, 2026, https://arxiv.org/abs/2608.02438. The paper adds rounds on the draft's own tokens, and a loss of the backbone
alone.
"""

from dataclasses import dataclass

from outdraft.drafters.shared.blocks.learn import BlockLearning
from outdraft.drafters.shared.blocks.method import learn_blocks
from outdraft.drafters.xpress import KIND
from outdraft.drafters.xpress.net import XpressSizes
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class XpressLearning(BlockLearning):
    """The network's shape, and how its blocks are trained."""

    pace: bool = False
    rank: int = 256
    ratio: int = 2  # of the refiner's inner width to its rank

    def __post_init__(self) -> None:
        BlockLearning.__post_init__(self)
        check_range(self, "rank", least=1, most=4096)
        check_range(self, "ratio", least=1, most=16)


LEARN = learn_blocks(
    KIND,
    XpressLearning,
    lambda options: XpressSizes(xpress_rank=options.rank, xpress_mlp_ratio=options.ratio),
    summary="a block in one pass, whose slots hear a refiner of the tokens before them",
    loss={"cross_entropy": 0.1, "total_variation": 0.9},
)
