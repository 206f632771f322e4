"""SpecDec: a non-autoregressive drafter; every slot of a block has a learned query of its own.

Xia et al., "Speculative decoding: exploiting speculative execution for accelerating seq2seq generation", 2022,
https://arxiv.org/abs/2203.16487. There an encoder reads the source, and a decoder fills the slots; behind a
decoder-only target the slots attend to the target's states in place of both. No slot knows what the others became.
"""

from outdraft.core.method import arxiv
from outdraft.drafters.shared.blocks.drafter import block_method
from outdraft.drafters.specdec.kind import KIND

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass, by slots with a learned query each; a chain or a tree",
    paper=arxiv(
        "2203.16487", "Speculative decoding: exploiting speculative execution for accelerating seq2seq generation"
    ),
)
