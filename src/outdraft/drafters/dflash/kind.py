"""DFlash's network: the backbone of all block networks, and nothing else."""

from outdraft.drafters.shared.blocks.kind import BlockKind

KIND: BlockKind[None] = BlockKind(
    name="dflash", architecture="DFlashSpeculator", read=lambda said, directory: None, write=lambda own: {}
)
