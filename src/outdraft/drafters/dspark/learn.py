"""Train DSpark's network: 0.1 cross-entropy and 0.9 total variation, by a fixed decay of slots, from the anchor's own.

DSpark, DeepSeek, 2026, https://arxiv.org/abs/2607.05147. The confidence learns the acceptance of its slot, sum min(p,
q), by binary cross-entropy, weight 1.
"""

from dataclasses import dataclass

from outdraft.drafters.dspark import KIND
from outdraft.drafters.dspark.net import DsparkSizes, Kind
from outdraft.drafters.shared.blocks.learn import BlockLearning
from outdraft.drafters.shared.blocks.method import learn_blocks
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkLearning(BlockLearning):
    """The network's shape, and how its blocks are trained."""

    pace: bool = False
    from_anchor: bool = True
    head: Kind = "plain"  # what the token before a slot goes through
    rank: int = 256
    confidence: bool = True  # a slot says how likely it is accepted

    def __post_init__(self) -> None:
        BlockLearning.__post_init__(self)
        check_range(self, "rank", least=1, most=4096)


LEARN = learn_blocks(
    KIND,
    DsparkLearning,
    lambda options: DsparkSizes(head=options.head, rank=options.rank, confident=options.confidence),
    summary="a block in one pass, whose slots hear the token before them",
    loss={"cross_entropy": 0.1, "total_variation": 0.9},
)
