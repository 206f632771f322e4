"""DFlash: a block of tokens in one pass of a network that reads the target's states.

Chen et al., "DFlash: block diffusion for flash speculative decoding", 2026, https://arxiv.org/abs/2602.06036. No slot
knows what the others became.
"""

from outdraft.core.head_format import served_by_sglang
from outdraft.core.method import arxiv
from outdraft.drafters.shared.blocks.drafter import block_method
from outdraft.drafters.shared.blocks.kind import BlockKind

KIND: BlockKind[None] = BlockKind(
    name="dflash",
    architecture="DFlashSpeculator",
    flat_architecture="DFlashDraftModel",
    read=lambda said, tensors, directory: None,
    write=lambda own: {},
    served={"vllm": "vllm serve {out}"},
    served_flat={"sglang": served_by_sglang("DFLASH")},
)

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass of a network on the target's states; a chain or a tree",
    paper=arxiv("2602.06036", "DFlash: block diffusion for flash speculative decoding"),
)
