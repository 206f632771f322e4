"""DSpark: a block in one pass, each slot corrected by the token before it, and a confidence.

DeepSeek, 2026, https://arxiv.org/abs/2607.05147.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.dspark.kind import KIND
from outdraft.drafters.shared.blocks.drafter import block_method

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass, each slot corrected by the token before it; a chain or a tree",
    paper=arxiv("2607.05147", "DSpark"),
)
