"""One linear map of a published checkpoint, whatever its format: integers, zero points and scales, or 8-bit floats.

    weight[o, i] = (codes[o, i] - zeros[o, g]) * scales[o, g]      g: the group of input i

Where groups are neighbouring inputs and the difference fits a byte, it is on our own grid (`kernels/decoder/grid.py`),
and the integers are handed over as they are: symmetric 4 bits on 4, symmetric 8 bits on 8, and 4 bits with zero points
(differences from -15 to 15) on 8. Blocks of GGUF's types hold these integers too, the last on 5 bits (Q5_0), and floats
of 4 bits. Everything else becomes a float weight.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.kernels.decoder import grid
from outdraft.models.files.published.blocks import integer_blocks
from outdraft.nn.quant.config import GROUP_SIZES
from outdraft.options.errors import ModelLoadError
from outdraft.weights.source import TensorSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Our grid that holds a map's integers exactly. `group_size` 0: one scale an output."""

    bits: int
    group_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """The integers of one map, read."""

    codes: Tensor  # [out, in], uint8 or int8
    zeros: Tensor  # [out, groups], int16
    scales: Tensor  # [out, groups], of any float type
    groups: Tensor | None = None  # [in] int64: each input's group; None: groups are neighbours of one size

    def integers(self, group_size: int) -> tuple[Tensor, Tensor]:
        """int8 [out, in] and float32 [out, in / group_size]; a group of theirs is one of ours or several."""
        num_out, num_groups = self.scales.shape
        codes = self.codes.view(num_out, num_groups, -1).short() - self.zeros[:, :, None]
        times = codes.shape[2] // group_size if group_size else 1
        return codes.to(torch.int8).flatten(1), self.scales.float().repeat_interleave(times, 1)

    def whole(self) -> Tensor:
        """The weight: float32 [out, in]."""
        if self.groups is None:
            num_out, num_groups = self.scales.shape
            codes = self.codes.view(num_out, num_groups, -1).short() - self.zeros[:, :, None]
            return grid.times_scales(codes.flatten(1), self.scales.float())
        return (self.codes.short() - self.zeros[:, self.groups]).float() * self.scales.float()[:, self.groups]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLinear:
    """What a file holds of one map: known from headers and small tensors, the rest is read when asked for."""

    shape: tuple[int, int]  # (out, in)
    parts: tuple[str, ...]  # its tensors in the file, but the bias
    bits: int
    read: Callable[[], Affine] | None = None  # None: floats
    read_floats: Callable[[], Tensor] | None = None  # float32 [out, in]
    grid: Grid | None = None  # None: on no grid of ours
    scales: str = ""  # which tensor holds them, of integers
    read_blocks: Callable[[], Tensor] | None = None  # of floats of 4 bits: uint8 [out, bytes of a row]
    floats: str = ""  # which type of blocks these are
    factor: float = 1.0  # of the whole map, beside its blocks

    @property
    def kind(self) -> str:
        """The type of blocks that holds it exactly, integers if float16 holds their scales; "": none."""
        if self.floats or self.grid is None or self.shape[1] % 32:
            return self.floats
        return "Q8_0" if self.bits == 8 else {4: "Q4_0", 8: "Q5_0"}[self.grid.bits]

    def blocks(self) -> Tensor:
        """The weights in blocks of `kind`: uint8 [out, bytes of a row]."""
        if self.read_blocks is not None:
            return self.read_blocks()
        return integer_blocks(*self.integers(32), self.kind)

    def integers(self, group_size: int) -> tuple[Tensor, Tensor]:
        """As `Affine.integers`; only where there is a grid."""
        assert self.read is not None
        return self.read().integers(group_size)

    def whole(self) -> Tensor:
        """The weight: float32 [out, in]."""
        if self.read_floats is not None:
            return self.read_floats()
        assert self.read is not None
        return self.read().whole()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a format's reader finds in a checkpoint."""

    name: str  # of the format, for the variant: "gptq"
    maps: Mapping[str, StoredLinear]  # by Hugging Face's name of the module ("model.layers.0.mlp.up_proj")
    unread: tuple[str, ...] = ()  # endings of tensors that say nothing of the weights
    notes: tuple[str, ...] = ()  # what is not done as its maker does it


def find_grid(bits: int, num_in: int, zeros: Tensor, middle: int, groups: Tensor | None) -> Grid | None:
    """The grid of ours that holds such integers exactly.

    zeros: [out, groups]; middle: the zero point of a symmetric rounding; groups: as in `Affine`.
    """
    if groups is not None:
        return None
    num_groups = zeros.shape[1]
    if num_groups == 1:
        size = 0
    else:
        fitting = [size for size in GROUP_SIZES if size and (num_in // num_groups) % size == 0]
        if not fitting:
            return None
        size = max(fitting)
    is_symmetric = bool((zeros == middle).all())
    if bits == 4:
        return Grid(bits=4 if is_symmetric and num_in % 2 == 0 else 8, group_size=size)
    return Grid(bits=8, group_size=size) if is_symmetric else None


def neighbour_groups(num_in: int, group_size: int) -> Tensor | None:
    """As `Affine.groups`: None where the inputs divide into such groups, else each input's group (the last is
    shorter)."""
    return torch.arange(num_in) // group_size if num_in % group_size else None


def ordered_groups(index: Tensor, num_groups: int, name: str, source: TensorSource) -> Tensor | None:
    """As `Affine.groups`, of a stored index [in]: None where groups are neighbours of one size.

    Raises `ModelLoadError` for a group that is not there.
    """
    index = index.long()
    strange = index[(index < 0) | (index >= num_groups)]
    if len(strange):
        raise ModelLoadError(
            f"tensor '{name}' in {source.origin} names group {int(strange[0])} of {num_groups}: download it again"
        )
    if len(index) % num_groups == 0:
        size = len(index) // num_groups
        if torch.equal(index, torch.arange(len(index)) // size):
            return None
    return index


def require_part(source: TensorSource, name: str, shape: tuple[int, ...], dtypes: tuple[str, ...]) -> None:
    """Raise `ModelLoadError` where a tensor is missing, or is not of this shape and one of these types."""
    if name not in source:
        raise ModelLoadError(f"{source.origin} lacks the tensor '{name}' of a quantized layer: download it again")
    found, dtype = source.shape(name), source.dtype_name(name)
    if found != shape or dtype not in dtypes:
        raise ModelLoadError(
            f"tensor '{name}' in {source.origin} is {dtype} of shape {found}, its quantization_config and neighbours "
            f"ask for {' or '.join(dtypes)} of shape {shape}: download config.json and weights again, of one revision"
        )
