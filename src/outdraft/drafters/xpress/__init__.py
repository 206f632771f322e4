"""xPress: a block in one pass, and a small causal refiner that reads the tokens before each slot.

IBM, 2026, https://arxiv.org/abs/2608.02438. The paper's passes over all slots at once converge to the walk along them.
"""

from dataclasses import asdict

import torch

from outdraft.core.method import arxiv
from outdraft.drafters.shared.blocks.drafter import block_method
from outdraft.drafters.shared.blocks.kind import BlockKind, BlockParts, correction_entries, sizes
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.drafters.xpress.net import Refiner, XpressSizes

_STD = 0.02  # of the table's first weights
_TENSORS = {
    "embedding": "refiner_head.token_embed.weight",
    "mix": "refiner_head.mix_l",
    "inputs.weight": "refiner_head.in_proj.weight",
    "projections.weight": "refiner_head.readout.weight",
    **{f"{part}.weight": f"refiner_head.{part}.weight" for part in ("down_h", "down_g")},
    **{f"{part}.weight": f"refiner_head.mlp_{part}.weight" for part in ("gate", "up", "down")},
}


@torch.no_grad()
def _begin(net: BlockNet) -> None:
    """Slots are not mixed at first, and the head adds nothing."""
    head = net.correction
    assert isinstance(head, Refiner)
    head.embedding.mul_(_STD / head.embedding.std())
    head.mix.zero_()
    head.projections.weight.zero_()


KIND: BlockKind[XpressSizes] = BlockKind(
    name="xpress",
    architecture="XPressSpeculator",
    flat_architecture="Qwen3XPressModel",
    read=lambda said, tensors, directory: sizes(XpressSizes, {**asdict(XpressSizes()), **said}, directory),
    write=asdict,
    keys=(*asdict(XpressSizes()), "xpress_topc"),
    mark=_TENSORS["mix"],
    parts=lambda config, own, dtype, device: BlockParts(correction=Refiner(config, own, dtype, device)),
    entries=correction_entries(_TENSORS),
    begin=_begin,
)

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass, each slot corrected by a causal refiner of those before it",
    paper=arxiv("2608.02438", "xPress"),
)
