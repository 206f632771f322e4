"""Train DFlash's network on a frozen target.

Chen et al., 2026, https://arxiv.org/abs/2602.06036: random anchors, a loss on each masked slot. Ours compares with the
target's whole distribution (`--loss cross_entropy=1` is the paper's), and slots count as D-PACE says (`pace=False`: by
a fixed decay, as in the paper).
"""

from outdraft.drafters.dflash import KIND
from outdraft.drafters.shared.blocks.learn import BlockLearning
from outdraft.drafters.shared.blocks.method import learn_blocks

LEARN = learn_blocks(
    KIND,
    BlockLearning,
    lambda options: None,
    summary="a block of tokens in one pass, from the target's states of all committed rows",
)
