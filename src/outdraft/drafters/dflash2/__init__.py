"""DFlash2: a block in one pass, and a walk over each slot's candidates by what neighbours say of each other.

"DFlash 2: keep drafting parallel", Inco AI, 2026, https://inco.ai/blog/dflash2/; DFlash: Chen
et al., 2026, https://arxiv.org/abs/2602.06036. What is drafted with is the softmax over the candidates, zero elsewhere.
"""

from collections.abc import Iterable
from dataclasses import asdict

import torch

from outdraft.core.head_format import served_by_sglang, served_by_vllm
from outdraft.core.method import Paper
from outdraft.drafters.dflash2.net import CandidateSelector, Dflash2Sizes
from outdraft.drafters.shared.blocks.convolution import BlockConvolution, begin_convolutions, convolution_entries
from outdraft.drafters.shared.blocks.drafter import block_method
from outdraft.drafters.shared.blocks.keys import Absent
from outdraft.drafters.shared.blocks.kind import BlockKind, BlockParts, sizes
from outdraft.drafters.shared.blocks.net import BlockConfig, BlockNet
from outdraft.models.families.shared.naming import Entry

_BOOKS = ("predecessor_codebook", "successor_codebook")
_STD = 0.02  # of a selector's first weights


def _parts(config: BlockConfig, own: Dflash2Sizes, dtype: torch.dtype, device: torch.device) -> BlockParts:
    width = config.layers.hidden_size
    return BlockParts(
        convolution=lambda: BlockConvolution(width, own.conv_kernel_size, own.conv_group_size, dtype, device),
        correction=CandidateSelector(config, own, dtype, device),
    )


def _entries(config: BlockConfig, own: Dflash2Sizes) -> Iterable[Entry]:
    yield from convolution_entries(config)
    for part in (*_BOOKS, "hidden_projection.weight"):
        yield Entry(ours=f"correction.{part}", theirs=(f"candidate_selector.{part}",))


def _also() -> dict[str, str]:
    """Other names of the code books, and llama.cpp's of all, -> ours."""
    books = {f"candidate_selector.{book}.weight": f"candidate_selector.{book}" for book in _BOOKS}
    theirs = zip(("selector_predecessor", "selector_successor"), _BOOKS, strict=True)
    books |= {f"{name}.weight": f"candidate_selector.{book}" for name, book in theirs}
    for name, ours in (("attn_conv", "attention_conv"), ("ffn_conv", "mlp_conv")):
        books |= {f"{name}_base": f"{ours}.base_kernel", f"{name}_proj.weight": f"{ours}.kernel_projection.weight"}
    return books | {"selector_hidden.weight": "candidate_selector.hidden_projection.weight"}


@torch.no_grad()
def _begin(net: BlockNet) -> None:
    """Convolutions change nothing at first."""
    begin_convolutions(net)
    assert net.correction is not None
    for one in net.correction.parameters():
        one.mul_(_STD / one.std())


KIND: BlockKind[Dflash2Sizes] = BlockKind(
    name="dflash2",
    architecture="DFlash2DraftModel",
    flat_architecture="DFlash2DraftModel",
    read=lambda said, tensors, directory: sizes(Dflash2Sizes, said, directory),
    write=asdict,
    keys=tuple(asdict(Dflash2Sizes())),
    mark="candidate_selector.predecessor_codebook",
    also=_also(),
    absent=Absent(causal_windows=False),
    served_flat={"vllm": served_by_vllm("dflash", 7), "sglang": served_by_sglang("DFLASH")},
    parts=_parts,
    entries=_entries,
    begin=_begin,
)

METHOD = block_method(
    KIND,
    also_called=("dflash",),
    summary="a block of tokens in one pass, and a selector that links one candidate of each slot; a chain or a tree",
    paper=Paper(title="DFlash 2: keep drafting parallel", year=2026, link="https://inco.ai/blog/dflash2/"),
)
