"""DFlash: a block of tokens in one pass of a network that reads the target's states.

Chen et al., "DFlash: block diffusion for flash speculative decoding", 2026, https://arxiv.org/abs/2602.06036. No slot
knows what the others became.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.dflash.kind import KIND
from outdraft.drafters.shared.blocks.drafter import block_method

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass of a network on the target's states; a chain or a tree",
    paper=arxiv("2602.06036", "DFlash: block diffusion for flash speculative decoding"),
)
