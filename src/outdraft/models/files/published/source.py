"""A published checkpoint seen as a plain one, by Hugging Face's names: a quantized map is `X.weight`; `X.qweight` and
`X.scales` once `keep_integers` found it on our grid; `X.blocks` where GGUF's blocks hold it in less.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod

from torch import Tensor

from outdraft.kernels.decoder import grid
from outdraft.kernels.decoder.blocks import MOST_PARTS
from outdraft.models.families.shared.naming import Entry, Layout, is_linear
from outdraft.models.files.published.formats import find_maps
from outdraft.models.files.published.linear import StoredLinear
from outdraft.nn.quant.blocks import BLOCKS
from outdraft.nn.quant.config import QuantConfig
from outdraft.options.errors import ModelLoadError
from outdraft.weights.source import TensorSource

_log = logging.getLogger(__name__)


class PublishedModel(TensorSource):
    """The tensors of a checkpoint in another program's format; `variant` names how they were rounded.

    Its 16-bit floats count as bfloat16, which the native kernels compute with, whatever their makers' GPUs preferred.
    blocks: maps may be GGUF's blocks, which cannot be trained or cut.
    """

    def __init__(self, source: TensorSource, told: object, *, blocks: bool = False) -> None:
        self.origin, self._source, self._blocks = source.origin, source, blocks
        self._found = found = find_maps(source, told)
        self._maps = {f"{stem}.weight": linear for stem, linear in found.maps.items()}
        parts = {part for linear in found.maps.values() for part in linear.parts}
        self._plain = {name for name in source if name not in parts and not name.endswith(found.unread or ("\0",))}
        self._kept: dict[str, tuple[StoredLinear, int, int]] = {}  # name -> map, our bits, our group size; 0, 0: blocks
        self._turned: set[str] = set()  # weights that stand there as [in, out]
        widths = sorted({linear.bits for linear in found.maps.values()}, reverse=True)
        self.variant = f"{found.name}-{'-'.join(map(str, widths))}"

    def keep_integers(self, table: Iterable[Entry]) -> QuantConfig | None:
        """Offer integers and scales, or blocks, in place of the weights that we can hold so; None if there are none.

        A map of ours that is made of several of theirs needs all of them to be on our grid, or all in blocks. All maps
        on the grid have the smallest group that any of them has: larger ones divide into it.
        """
        table = list(table)
        self._drop_empty_biases({name for entry in table for name in entry.theirs})
        linears = {entry.ours.removesuffix(".weight"): entry for entry in table if entry.ours.endswith(".weight")}
        linears = {ours: entry for ours, entry in linears.items() if is_linear(ours)}
        self._turned = {
            name for entry in linears.values() if entry.layout is Layout.TRANSPOSED for name in entry.theirs
        }
        found = {ours: [self._maps.get(name) for name in entry.theirs] for ours, entry in linears.items()}
        whole = {ours: [one for one in maps if one is not None] for ours, maps in found.items() if None not in maps}
        blocks = {ours: maps for ours, maps in whole.items() if self._are_blocks(maps, linears[ours].heights)}
        grids = {
            ours: [one.grid for one in maps if one.grid is not None]
            for ours, maps in whole.items()
            if ours not in blocks and all(one.grid for one in maps)
        }
        group_size = min((one.group_size for found in grids.values() for one in found if one.group_size), default=0)
        bits = {
            ours: max(one.bits for one in found)
            for ours, found in grids.items()
            if not group_size or not any(self._maps[name].shape[1] % group_size for name in linears[ours].theirs)
        }
        for ours in (*bits, *blocks):
            for name in linears[ours].theirs:
                linear, stem = self._maps.pop(name), name.removesuffix("weight")
                for part in ("qweight", "scales") if ours in bits else ("blocks",):
                    self._kept[f"{stem}{part}"] = (linear, bits.get(ours, 0), group_size)
        self._tell(len(bits) + len(blocks))
        if not bits and not blocks:
            return None
        common = Counter(bits.values()).most_common(1)[0][0] if bits else 4
        return QuantConfig(
            bits=common,
            group_size=group_size,
            keep=tuple(ours for ours in linears if ours not in bits),
            layer_bits=tuple((ours, own) for ours, own in bits.items() if own != common),
            blocks=tuple((ours, tuple((one.kind, one.shape[0]) for one in maps)) for ours, maps in blocks.items()),
            factors=tuple(
                (ours, tuple(one.factor for one in maps))
                for ours, maps in blocks.items()
                if any(one.factor != 1 for one in maps)
            ),
        )

    def _are_blocks(self, maps: list[StoredLinear], heights: tuple[int, ...]) -> bool:
        """Whether blocks hold the parts of a map of ours exactly, and in fewer bits than our grid."""
        widths = {bits for one in maps for bits in (one.bits, one.grid.bits if one.grid is not None else 0)}
        fits = len(maps) == 1 or (len(maps) <= MOST_PARTS and heights == tuple(one.shape[0] for one in maps))
        return (
            self._blocks
            and fits
            and len(widths) > 1
            and all(one.kind for one in maps)
            and all(one.floats or self._are_halves(one.scales) for one in maps)
        )

    def _are_halves(self, name: str) -> bool:
        """Whether float16 holds all of these scales."""
        if self._source.dtype_name(name) == "F16":
            return True
        scales = self._source[name].float()
        return bool((scales.half().float() == scales).all())

    def _drop_empty_biases(self, wanted: set[str]) -> None:
        """Early GPTQ programs stored a bias of zeros for maps that have none."""
        for name in self._maps:
            bias = f"{name.removesuffix('weight')}bias"
            if bias in self._plain and bias not in wanted and not self._source[bias].any():
                self._plain.remove(bias)

    def _tell(self, num_integers: int) -> None:
        """One line on what is held how, and what it costs."""
        told = [f"{num_integers} maps stay on few bits"] if num_integers else []
        if any(bits > linear.bits for linear, bits, _ in self._kept.values()):
            told.append("4 bits with zero points are held on 8, exactly")
        if self._maps:
            parts = [part for linear in self._maps.values() for part in linear.parts]
            stored = sum(prod(self._source.shape(part)) * _size(self._source.dtype_name(part)) for part in parts)
            made = sum(2 * prod(linear.shape) for linear in self._maps.values())
            told.append(
                f"{len(self._maps)} weights are on no grid of the kernels and become 16-bit floats, which takes "
                f"{made / 1e6:.1f} MB instead of {stored / 1e6:.1f} (`outdraft quantize` on the unquantized model "
                "takes less)"
            )
        costs = len(told) > bool(num_integers) or self._found.notes
        _log.log(
            logging.WARNING if costs else logging.INFO,
            "%s, %s: %s",
            self.origin.name,
            self.variant,
            "; ".join([*told, *self._found.notes]),
        )

    def __getitem__(self, name: str) -> Tensor:
        if name in self._maps:
            whole = self._maps[name].whole()
            return whole.t() if name in self._turned else whole
        if name in self._kept:
            linear, bits, group_size = self._kept[name]
            if not bits:
                return self._rows(linear)
            integers, scales = linear.integers(group_size)
            return scales if name.endswith(".scales") else grid.pack(integers, bits)
        return self._source[name]

    def _rows(self, linear: StoredLinear) -> Tensor:
        rows = linear.blocks()
        if not BLOCKS[linear.kind].are_finite(rows):
            raise ModelLoadError(
                f"tensor '{linear.scales}' in {self.origin} has a scale that is no finite number: download it again"
            )
        return rows

    def __contains__(self, name: object) -> bool:
        return name in self._maps or name in self._kept or name in self._plain

    def __iter__(self) -> Iterator[str]:
        yield from self._maps
        yield from self._kept
        yield from sorted(self._plain)

    def __len__(self) -> int:
        return len(self._maps) + len(self._kept) + len(self._plain)

    def shape(self, name: str) -> tuple[int, ...]:
        if name in self._maps:
            shape = self._maps[name].shape
            return shape[::-1] if name in self._turned else shape
        if name not in self._kept:
            return self._source.shape(name)
        linear, bits, group_size = self._kept[name]
        num_out, num_in = linear.shape
        if not bits:
            return (num_out, BLOCKS[linear.kind].row_bytes(num_in))
        if name.endswith(".scales"):
            return (num_out, num_in // group_size if group_size else 1)
        return (num_out, num_in * bits // 8)

    def dtype_name(self, name: str) -> str:
        """As `TensorSource`; float16 is named BF16."""
        if name in self._maps:
            return "BF16"
        if name in self._kept:
            return "F32" if name.endswith(".scales") else {8: "I8", 4: "U8", 0: "U8"}[self._kept[name][1]]
        found = self._source.dtype_name(name)
        return "BF16" if found == "F16" else found


def _size(dtype: str) -> int:
    """Bytes of an element of this type, as safetensors spells it."""
    return {"F32": 4, "I32": 4, "I64": 8, "F16": 2, "BF16": 2}.get(dtype, 1)
