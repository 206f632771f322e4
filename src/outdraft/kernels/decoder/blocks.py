"""A weight in the block formats of GGUF files (native/blocks.h), as rows of bytes that the file has.

A part is some of the outputs, all in one format; a map that a file holds in several tensors has a part for each.
"""

from collections.abc import Sequence as Seq
from ctypes import Array
from dataclasses import dataclass

from torch import Tensor

from outdraft.kernels.declared import CBlocks, CLinear
from outdraft.kernels.library import wanted_kind
from outdraft.options.errors import CapabilityError

SPANS = {  # inputs and bytes of a block, in the order of Block of native/blocks.h
    "Q4_0": (32, 18),
    "Q4_1": (32, 20),
    "Q5_0": (32, 22),
    "Q5_1": (32, 24),
    "Q8_0": (32, 34),
    "Q2_K": (256, 84),
    "Q3_K": (256, 110),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
    "IQ4_NL": (32, 18),
    "IQ4_XS": (256, 136),
    "MXFP4": (32, 17),
    "NVFP4": (64, 36),
}
_NUMBERS = {kind: number for number, kind in enumerate(SPANS)}
MOST_PARTS = 4  # kMostParts of native/packed.h


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWeight:
    """A weight [N, K] ready to be packed; the tensors must live until it has been.

    Fields:
        parts: for each the name of its format and its rows, uint8 [outputs, bytes of a row], contiguous.
        bias: float32 [N].
        factors: what the sums of each part are multiplied by; (): 1.
    """

    parts: Seq[tuple[str, Tensor]]
    bias: Tensor | None = None
    factors: Seq[float] = ()

    def __post_init__(self) -> None:
        if not 0 < len(self.parts) <= MOST_PARTS:
            raise CapabilityError(f"the native kernels take a weight of 1 to {MOST_PARTS} parts, not {len(self.parts)}")
        widths = {self._width(kind, rows) for kind, rows in self.parts}
        if len(widths) > 1:
            raise CapabilityError(f"the parts of a weight have {sorted(widths)} inputs: they must be of one width")

    @staticmethod
    def _width(kind: str, rows: Tensor) -> int:
        if kind not in SPANS:
            raise CapabilityError(f"the native kernels do not know {kind} blocks (known: {', '.join(SPANS)})")
        span, size = SPANS[kind]
        if rows.shape[1] % size:
            raise CapabilityError(f"rows of {rows.shape[1]} bytes are no whole {kind} blocks, of {size} bytes each")
        return rows.shape[1] // size * span

    @property
    def num_out(self) -> int:
        return sum(rows.shape[0] for _, rows in self.parts)

    @property
    def num_in(self) -> int:
        return self._width(*self.parts[0])

    def described_parts(self) -> Array[CBlocks]:
        """For the kernels; it does not hold the rows."""
        parts = zip(self.parts, self.factors or (1.0,) * len(self.parts), strict=True)
        return (CBlocks * len(self.parts))(
            *(CBlocks(_NUMBERS[kind], rows.shape[0], rows.data_ptr(), by) for (kind, rows), by in parts)
        )

    def describe(self) -> CLinear:
        """For the kernels; it holds the list of parts, and not the rows."""
        parts = self.described_parts()
        bias = self.bias.data_ptr() if self.bias is not None else None
        return CLinear(0, self.num_out, self.num_in, 0, None, None, bias, parts, len(parts))


def prefers_blocks() -> bool:
    """Whether integers on our own grid are multiplied sooner as blocks than in the grid's layout: on AVX2. The matrix
    unit has products for the grid alone."""
    return wanted_kind() == "avx2"
