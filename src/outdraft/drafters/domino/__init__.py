"""Domino: a block in one pass, each slot corrected by a recurrent state of the tokens before it.

Huang et al., 2026, https://arxiv.org/abs/2605.29707.
"""

from dataclasses import asdict

import torch

from outdraft.core.method import arxiv
from outdraft.drafters.domino.net import DominoSizes, PrefixHead
from outdraft.drafters.shared.blocks.drafter import block_method
from outdraft.drafters.shared.blocks.kind import BlockKind, BlockParts, correction_entries, sizes
from outdraft.drafters.shared.blocks.net import BlockNet

_TENSORS = {
    "inputs.weight": "prefix_gru.weight_ih_l0",
    "memory.weight": "prefix_gru.weight_hh_l0",
    "mix.weight": "embed_proj.0.weight",
    "projections.weight": "embed_proj.2.weight",
}


@torch.no_grad()
def _begin(net: BlockNet) -> None:
    """The head adds nothing at first."""
    assert isinstance(net.correction, PrefixHead)
    net.correction.projections.weight.zero_()


KIND: BlockKind[DominoSizes] = BlockKind(
    name="domino",
    architecture="DominoDraftModel",
    flat_architecture="DominoDraftModel",
    read=lambda said, tensors, directory: sizes(DominoSizes, {"pure_draft_prefix_len": 0, **said}, directory, least=0),
    write=lambda own: {"projector_type": "domino", **asdict(own)},
    keys=tuple(asdict(DominoSizes())),
    mark=_TENSORS["inputs.weight"],
    parts=lambda config, own, dtype, device: BlockParts(correction=PrefixHead(config, own, dtype, device)),
    entries=correction_entries(_TENSORS),
    begin=_begin,
)

METHOD = block_method(
    KIND,
    summary="a block of tokens in one pass, each slot corrected by a recurrent state of those before it",
    paper=arxiv("2605.29707", "Domino"),
)
