"""Rename tables: where each of our parameters stands in a Hugging Face file, and in which layout.

Our `layers.0.qkv.weight` is
    q_proj.weight, k_proj.weight, v_proj.weight    stacked (row blocks of given heights), as in Llama
    attn.c_attn.weight                             transposed (GPT-2 keeps [in, out])
    attention.query_key_value.weight               interleaved (GPT-NeoX: q, k, v head by head)
A quantized map's `.qweight` and `.scales` stand under the name of the weight, one row an output in every layout.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch
from torch import Tensor

from outdraft.models.config import ModelConfig
from outdraft.nn.quant.config import QuantConfig

LINEAR_MAPS = ("qkv", "out", "up", "down")  # of a layer


class Layout(Enum):
    """How one or more stored tensors make one of ours."""

    STACKED = "stacked"
    TRANSPOSED = "transposed"
    INTERLEAVED = "interleaved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One parameter of ours and its source."""

    ours: str
    theirs: tuple[str, ...]
    layout: Layout = Layout.STACKED
    heights: tuple[int, ...] = ()  # rows of each stored tensor when there are several
    num_heads: int = 0  # interleaved: heads to untangle

    def join(self, stored: Sequence[Tensor]) -> Tensor:
        if self.layout is Layout.TRANSPOSED:
            return stored[0].t()
        if self.layout is Layout.INTERLEAVED:
            rows = stored[0]
            by_head = rows.view(self.num_heads, 3, -1, *rows.shape[1:])  # [H, 3, d, ...]
            return by_head.transpose(0, 1).flatten(0, 2)
        return stored[0] if len(stored) == 1 else torch.cat(list(stored))

    def split(self, ours: Tensor) -> dict[str, Tensor]:
        if self.layout is Layout.TRANSPOSED:
            return {self.theirs[0]: ours.t()}
        if self.layout is Layout.INTERLEAVED:
            by_kind = ours.view(3, self.num_heads, -1, *ours.shape[1:])  # [3, H, d, ...]
            return {self.theirs[0]: by_kind.transpose(0, 1).flatten(0, 2)}
        if len(self.theirs) == 1:
            return {self.theirs[0]: ours}
        return dict(zip(self.theirs, torch.split(ours, list(self.heights)), strict=True))


def stored_shapes(entry: Entry, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The shapes that the stored tensors must have for a parameter of this shape."""
    if entry.layout is Layout.TRANSPOSED:
        return [shape[::-1]]
    if len(entry.theirs) == 1:
        return [shape]
    return [(height, *shape[1:]) for height in entry.heights]


def stored_entries(table: Iterable[Entry], quant: QuantConfig | None) -> Iterable[Entry]:
    """The table with two entries, integers and scales, in place of every weight that is quantized."""
    for entry in table:
        stem, _, kind = entry.ours.rpartition(".")
        if quant is None or kind != "weight" or not is_linear(stem) or not quant.covers(stem):
            yield entry
            continue
        layout = Layout.STACKED if entry.layout is Layout.TRANSPOSED else entry.layout
        for part in ("qweight", "scales"):
            theirs = tuple(f"{name.removesuffix('.weight')}.{part}" for name in entry.theirs)
            yield replace(entry, ours=f"{stem}.{part}", theirs=theirs, layout=layout)


def is_linear(name: str) -> bool:
    """Whether this module of ours is a linear map."""
    return name == "lm_head" or name.rpartition(".")[2] in LINEAR_MAPS


def linear(ours: str, theirs: Sequence[str], bias: bool, **options: object) -> Iterable[Entry]:
    """The weight of a linear map and, if it has one, its bias (which is never transposed)."""
    yield Entry(ours=f"{ours}.weight", theirs=tuple(f"{name}.weight" for name in theirs), **options)  # type: ignore[arg-type]
    if bias:
        if options.get("layout") is Layout.TRANSPOSED:
            options = {name: value for name, value in options.items() if name != "layout"}
        yield Entry(ours=f"{ours}.bias", theirs=tuple(f"{name}.bias" for name in theirs), **options)  # type: ignore[arg-type]


def norm(ours: str, theirs: str, config: ModelConfig) -> Iterable[Entry]:
    """A norm's weight, and the bias of a LayerNorm."""
    yield Entry(ours=f"{ours}.weight", theirs=(f"{theirs}.weight",))
    if config.norm == "layer":
        yield Entry(ours=f"{ours}.bias", theirs=(f"{theirs}.bias",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What one architecture file says: its names, its configuration both ways, and its rename table."""

    model_type: str  # as in config.json
    class_name: str  # as in config.json's `architectures`
    read: Callable[[dict[str, object]], ModelConfig]
    write: Callable[[ModelConfig], dict[str, object]]
    table: Callable[[ModelConfig], Iterable[Entry]]
    prefix: str = ""  # older files may lack this prefix on every name
    ignored: tuple[str, ...] = ()  # endings of stored buffers that are not weights
