"""xPress: a block in one pass, and a small causal refiner that reads the tokens before each slot.

IBM, 2026, https://arxiv.org/abs/2608.02438. The paper's passes over all slots at once converge to the walk along them.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.shared.blocks.drafter import block_method
from outdraft.drafters.xpress.kind import KIND

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass, each slot corrected by a causal refiner of those before it",
    paper=arxiv("2608.02438", "xPress"),
)
