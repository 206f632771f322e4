"""DFlash2: a block in one pass, and a walk over each slot's candidates by what neighbours say of each other.

"DFlash 2: keep drafting parallel", Inco AI, 2026, https://inco.ai/blog/dflash2/; DFlash: Chen
et al., 2026, https://arxiv.org/abs/2602.06036. What is drafted with is the softmax over the candidates, zero elsewhere.
"""

from outdraft.core.method import Paper
from outdraft.drafters.dflash2.kind import KIND
from outdraft.drafters.shared.blocks.drafter import block_method

METHOD = block_method(
    KIND,
    also_called=("dflash",),
    summary="a block of tokens in one pass, and a selector that links one candidate of each slot; a chain or a tree",
    paper=Paper(title="DFlash 2: keep drafting parallel", year=2026, link="https://inco.ai/blog/dflash2/"),
)
