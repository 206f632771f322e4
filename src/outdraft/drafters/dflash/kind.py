"""DFlash's network: the backbone of all block networks, and nothing else."""

from outdraft.core.head_format import served_by_sglang
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
