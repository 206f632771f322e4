"""DFlash2's network: convolutions around every sublayer, and a selector behind the head."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch

from outdraft.core.head_format import served_by_sglang, served_by_vllm
from outdraft.drafters.dflash2.net import CandidateSelector
from outdraft.drafters.shared.blocks.config import BlockConfig
from outdraft.drafters.shared.blocks.convolution import BlockConvolution, begin_convolutions, convolution_entries
from outdraft.drafters.shared.blocks.keys import Absent
from outdraft.drafters.shared.blocks.kind import BlockKind, BlockParts, sizes
from outdraft.drafters.shared.blocks.net import BlockNet
from outdraft.models.families.shared.naming import Entry

_BOOKS = ("predecessor_codebook", "successor_codebook")
_STD = 0.02  # of a selector's first weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Dflash2Sizes:
    """As config.json spells them."""

    conv_kernel_size: int = 2  # rows of a block that a convolution reads
    conv_group_size: int = 16  # channels that share a moving kernel
    selector_rank: int = 256
    selector_top_k: int = 16  # candidates of a slot


def _parts(config: BlockConfig, own: Dflash2Sizes, dtype: torch.dtype, device: torch.device) -> BlockParts:
    width = config.layers.hidden_size
    return BlockParts(
        convolution=lambda: BlockConvolution(width, own.conv_kernel_size, own.conv_group_size, dtype, device),
        correction=CandidateSelector(
            width,
            config.layers.vocab_size,
            config.draft_vocab_size,
            own.selector_rank,
            own.selector_top_k,
            dtype,
            device,
        ),
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
