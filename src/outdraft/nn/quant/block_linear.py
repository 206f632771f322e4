"""Layers over the bytes of a GGUF file: linear maps and embeddings whose weights stay the file's own blocks.

    qkv    q, k: Q4_K [rows, bytes]    v: Q6_K [rows, bytes]      a map of ours may be several of theirs

A map is multiplied as `RoundedMap` says; an embedding makes floats of the rows that are looked up. A tied head
holds the same `Blocks` as its embedding.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from outdraft.kernels.decoder import grid
from outdraft.kernels.threads import torch_threads
from outdraft.nn.quant.blocks import BLOCKS, dequantize
from outdraft.nn.quant.config import Parts
from outdraft.nn.quant.rounded import RoundedMap
from outdraft.options.errors import ConfigError

_GRIDS = {"Q8_0": 8, "Q4_0": 4}  # bits of the types that are our own grid: a float16 scale, then 32 integers


class Blocks(nn.Module):
    """Rows of blocks, one buffer a part: "0", "1", ... uint8 [rows, bytes of a row], filled by the reader of files."""

    def __init__(self, parts: Parts, num_in: int, device: torch.device, factors: tuple[float, ...] = ()) -> None:
        super().__init__()
        self.parts, self.num_in, self.factors = parts, num_in, factors
        self.num_out = sum(rows for _, rows in parts)
        for i, (kind, rows) in enumerate(parts):
            if num_in % BLOCKS[kind].weights:
                raise ConfigError(
                    f"rows of {num_in} weights do not divide into {kind}'s blocks of {BLOCKS[kind].weights}"
                )
            size = BLOCKS[kind].row_bytes(num_in)
            self.register_buffer(str(i), torch.empty(rows, size, dtype=torch.uint8, device=device))

    def held(self) -> list[tuple[str, Tensor]]:
        """Each part's type and its bytes [rows, bytes of a row]."""
        return [(kind, self.get_buffer(str(i))) for i, (kind, _) in enumerate(self.parts)]

    def dequantize(self, dtype: torch.dtype) -> Tensor:
        """All of the rows as floats: [out, in]."""
        return floats_of(self.held(), dtype, self.factors)


class BlockLinear(RoundedMap):
    """x W^T + b of which W is the blocks of one or several tensors of the file."""

    def __init__(
        self,
        num_in: int,
        num_out: int,
        bias: bool,
        dtype: torch.dtype,
        device: torch.device,
        *,
        parts: Parts,
        factors: tuple[float, ...] = (),
    ) -> None:
        super().__init__(num_in, num_out, bias, dtype, device)
        self.blocks = Blocks(parts, num_in, device, factors)

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The floats that the blocks stand for: [out, in]."""
        return self.blocks.dequantize(dtype)

    def off_grid(self) -> str:
        if self.blocks.factors or not our_bits(self.blocks.parts):
            return f"no product is known of {' beside '.join(sorted({kind for kind, _ in self.blocks.parts}))}"
        return ""

    def on_grid(self) -> tuple[int, Tensor, Tensor]:
        return our_bits(self.blocks.parts), *on_our_grid(self.blocks.held())

    def to_host(self) -> None:
        self.blocks = deepcopy(self.blocks).cpu()  # an embedding may share them, and looks rows up on its device


class BlockEmbedding(nn.Module):
    """A table [V, D] of which floats are made where it is looked up."""

    like: Tensor  # [0], of the activations' type and device

    def __init__(self, num_rows: int, width: int, dtype: torch.dtype, device: torch.device, *, kind: str) -> None:
        super().__init__()
        self.shape = (num_rows, width)
        self.blocks = Blocks(((kind, num_rows),), width, device)
        self.register_buffer("like", torch.empty(0, dtype=dtype, device=device), persistent=False)

    @classmethod
    def over(cls, kind: str, rows: Tensor, dtype: torch.dtype) -> "BlockEmbedding":
        """Of rows uint8 [V, bytes of a row] where they lie."""
        width = rows.shape[1] // BLOCKS[kind].size * BLOCKS[kind].weights
        made = cls(rows.shape[0], width, dtype, torch.device("meta"), kind=kind)
        made.like = torch.empty(0, dtype=dtype, device=rows.device)
        made.blocks.register_buffer("0", rows)
        return made

    def forward(self, ids: Tensor) -> Tensor:
        """ids [N] -> [N, D]."""
        ((kind, rows),) = self.blocks.held()
        return dequantize(rows.index_select(0, ids), kind, self.dtype)

    def detach(self) -> Tensor:
        """The table as floats [V, D], made anew: for a caller that cannot do without."""
        return self.blocks.dequantize(self.dtype)

    @property
    def dtype(self) -> torch.dtype:
        return self.like.dtype

    @property
    def device(self) -> torch.device:
        return self.like.device


def floats_of(held: list[tuple[str, Tensor]], dtype: torch.dtype, factors: tuple[float, ...] = ()) -> Tensor:
    """Parts (type, bytes [rows, bytes of a row]), times their factors, as the floats that they stand for: [out, in]."""
    with torch_threads(1):  # many small steps, in which several threads on busy cores would wait for each other
        if factors:
            made = [(dequantize(one, kind) * by).to(dtype) for (kind, one), by in zip(held, factors, strict=True)]
        else:
            made = [dequantize(rows, kind, dtype) for kind, rows in held]
        return made[0] if len(made) == 1 else torch.cat(made)


def our_bits(parts: Parts) -> int:
    """Bits of our own grid, if these parts are on it together; else 0."""
    kinds = {kind for kind, _ in parts}
    return _GRIDS.get(kinds.pop(), 0) if len(kinds) == 1 else 0


def on_our_grid(held: list[tuple[str, Tensor]]) -> tuple[Tensor, Tensor]:
    """Parts for which `our_bits` knows a number: packed integers (`grid.pack`) and scales float32 [out, in / 32]."""
    bits = _GRIDS[held[0][0]]
    rows = torch.cat([rows for _, rows in held])
    blocks = rows.view(len(rows), -1, BLOCKS[held[0][0]].size)
    scales = blocks[:, :, :2].contiguous().view(torch.float16).squeeze(2).float()
    values = blocks[:, :, 2:]
    if bits == 4:  # 16 low halves, then 16 high ones, each plus 8
        values = torch.cat((values & 15, values >> 4), 2) - 8
    return grid.pack(values.contiguous().view(torch.int8).flatten(1), bits), scales
