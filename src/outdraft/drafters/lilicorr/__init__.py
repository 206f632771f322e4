"""LiLiCorr: a block in one pass, and a network over the candidates of all slots that says which of them match.

NVIDIA, 2026, https://arxiv.org/abs/2608.20530. What is drafted with is the softmax over a slot's candidates, zero
elsewhere.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.lilicorr.kind import KIND
from outdraft.drafters.shared.blocks.drafter import block_method

METHOD = block_method(
    KIND,
    also_called=("dflash",),
    summary="a block of tokens in one pass, and a network over its slots' candidates that links one of each",
    paper=arxiv("2608.20530", "LiLiCorr"),
)
