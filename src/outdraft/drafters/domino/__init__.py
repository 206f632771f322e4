"""Domino: a block in one pass, each slot corrected by a recurrent state of the tokens before it.

Huang et al., 2026, https://arxiv.org/abs/2605.29707.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.domino.kind import KIND
from outdraft.drafters.shared.blocks.drafter import block_method

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass, each slot corrected by a recurrent state of those before it",
    paper=arxiv("2605.29707", "Domino"),
)
