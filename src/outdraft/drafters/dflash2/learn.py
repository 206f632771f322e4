"""Train DFlash2's network: DFlash's loss of the backbone, and the selector's over each slot's candidates, weight 1.

As released in speculators 0.9 (2026), of whose selector a slot's true token is always a candidate.
"""

from dataclasses import dataclass

from outdraft.drafters.dflash2 import KIND
from outdraft.drafters.dflash2.net import Dflash2Sizes
from outdraft.drafters.shared.blocks.learn import BlockLearning
from outdraft.drafters.shared.blocks.method import learn_blocks
from outdraft.options.ranges import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Dflash2Learning(BlockLearning):
    """The network's shape, and how its blocks are trained."""

    conv_kernel_size: int = 2  # rows of a block that a convolution reads
    conv_group_size: int = 16  # channels that share a moving kernel
    selector_rank: int = 256  # of what a token says of the next one
    selector_top_k: int = 16  # candidates of a slot

    def __post_init__(self) -> None:
        BlockLearning.__post_init__(self)
        check_range(self, "conv_kernel_size", least=1, most=16)
        check_range(self, "conv_group_size", "selector_rank", "selector_top_k", least=1, most=4096)


LEARN = learn_blocks(
    KIND,
    Dflash2Learning,
    lambda options: Dflash2Sizes(**{key: getattr(options, key) for key in KIND.keys}),
    summary="a block in one pass, and a selector that links one candidate a slot",
)
