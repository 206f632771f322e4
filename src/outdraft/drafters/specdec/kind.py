"""SpecDec's network: the backbone of all block networks, with a learned row in the place of each slot's mask."""

from outdraft.drafters.shared.blocks.keys import SLOT_MASKS
from outdraft.drafters.shared.blocks.kind import BlockKind

KIND: BlockKind[None] = BlockKind(
    name="specdec",
    architecture="SpecDecDrafter",
    flat_architecture=None,
    read=lambda said, tensors, directory: None,
    write=lambda own: {},
    mark=SLOT_MASKS,
    slot_masks=True,
)
