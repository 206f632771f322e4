"""A model's weights read piece by piece for the native kernels, and rounded on the way if that is asked for.

A piece is a layer, or what stands at the ends (embeddings, final norm, head). A caller that packs a piece and lets it
go never holds the model twice.

    files -> tensors under our names -> `LayerParts` -> the packed stack         no module of PyTorch between
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod

import torch
from torch import Tensor

from outdraft.kernels.decoder import grid
from outdraft.kernels.decoder.matrix import Packable, Weight
from outdraft.kernels.decoder.stack import LayerParts, Stack
from outdraft.kernels.library import wanted_kind
from outdraft.kernels.threads import num_threads, torch_threads
from outdraft.models.families.shared.naming import EMBEDDING, HEAD
from outdraft.models.files.load import StoredWeights
from outdraft.models.networks.config import ModelConfig
from outdraft.models.networks.native import NativeDecoder, PackedWeights, shape_of
from outdraft.models.remake.quantize import require_roundable
from outdraft.models.remake.rounded_pieces import rounded_tensors, rounded_weight, table_of_blocks
from outdraft.nn.quant.block_linear import BlockEmbedding
from outdraft.nn.quant.config import QuantConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What stands before and behind the layers."""

    embedding: Tensor | BlockEmbedding  # [V, D]
    norm: Tensor  # [D] float32; a layer norm's followed by its bias, [2 D]
    head: Packable


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The pieces of a model that the kernels know (`native.can_pack`).

    Raises `ConfigError` for a rounding that does not fit the model, `ModelLoadError` for files that hold other shapes.
    """

    stored: StoredWeights
    rounding: QuantConfig | None = None  # of weights that are not rounded in the files
    _asked: Mapping[str, Tensor] = field(init=False, repr=False)  # what the files must hold, without memory

    def __post_init__(self) -> None:
        if self.rounding is not None:
            require_roundable(self.stored.config, self.rounding)
        asked = self.stored.check_shapes(lambda: dict(tensors_for(self.stored.config, self.stored.dtype)))
        object.__setattr__(self, "_asked", asked)

    @property
    def config(self) -> ModelConfig:
        """The configuration of the model that the pieces belong to."""
        rounding = self.rounding
        if rounding is None:
            return self.stored.config
        return replace(self.stored.config, quant=rounding, variant=rounding.variant)

    @property
    def num_parameters(self) -> int:
        """Tied weights once, rounded ones as what they stand for."""
        config = self.config
        tied = config.tie_embeddings and not (config.quant is not None and config.quant.covers("lm_head"))
        whole = tensors_for(replace(config, quant=None), self.stored.dtype)
        return sum(prod(tensor.shape) for name, tensor in whole if not (tied and name == "lm_head.weight"))

    @property
    def is_tied(self) -> bool:
        """Whether the head's matrix is the embedding, number for number."""
        is_rounded = self.rounding is not None and self.rounding.covers("lm_head")
        return self.config.tie_embeddings and not is_rounded and not self._asked.keys().isdisjoint(HEAD)

    def layer(self, index: int) -> LayerParts:
        """Layer `index`, read now. Raises `ModelLoadError`."""
        config, at = self.config, f"layers.{index}."
        read = self._read(name for name in self._asked if name.startswith(at))
        qkv, out, up, down = (self._weight(read, at + name) for name in ("qkv", "out", "up", "down"))
        attn_norm = self._norm(read, at + "attn_norm")
        return LayerParts(
            qkv=qkv,
            out=out,
            up=up,
            down=down,
            attn_norm=attn_norm,
            mlp_norm=attn_norm if config.shared_norm else self._norm(read, at + "mlp_norm"),
            attn_post=self._norm(read, at + "attn_post_norm"),
            mlp_post=self._norm(read, at + "mlp_post_norm"),
            q_norm=self._norm(read, at + "q_norm"),
            k_norm=self._norm(read, at + "k_norm"),
            window=config.window(index) or 0,
            turns=config.rope_kind(index),
        )

    def ends(self) -> Ends:
        """Everything but the layers, read now. Raises `ModelLoadError`."""
        tied = HEAD if self.config.tie_embeddings else ()
        read = self._read(name for name in self._asked if not name.startswith("layers.") and name not in tied)
        read |= {name: read[like] for name, like in zip(tied, EMBEDDING, strict=False) if name in self._asked}
        norm = self._norm(read, "final_norm")
        assert norm is not None
        table = read["embedding"] if "embedding" in read else self.table_over(read["embedding.blocks.0"])
        return Ends(embedding=table, norm=norm, head=self._weight(read, "lm_head"))

    def table_over(self, rows: Tensor) -> Tensor | BlockEmbedding:
        """The embedding that these bytes are."""
        rows, quant = rows.view(self.config.vocab_size, -1), self.config.quant
        if quant is None or not quant.parts_of("embedding", 0):
            return rows.view(self.stored.dtype)
        return table_of_blocks(quant, rows, self.stored.dtype)

    def final_norm(self) -> Tensor:
        """The final norm alone: [D] float32, a layer norm's followed by its bias."""
        norm = self._norm(self._read(name for name in self._asked if name.startswith("final_norm.")), "final_norm")
        assert norm is not None
        return norm

    def pack(self) -> NativeDecoder:
        """A decoder on the native kernels, packed in memory, a piece at a time. Raises `ModelLoadError`."""
        stack = self.empty_stack()
        for index in range(self.config.num_layers):
            stack.set_layer(index, self.layer(index))
        ends = self.ends()
        stack.set_head(ends.head, ends.norm)
        table = None if self.is_tied else ends.embedding
        return self.packed(stack, table, ends.norm)

    def packed(self, stack: Stack, table: Tensor | BlockEmbedding | None, norm: Tensor) -> NativeDecoder:
        """The decoder over a stack that holds these pieces. table: None where the head has its rows."""
        count = self.num_parameters
        return NativeDecoder(
            PackedWeights(config=self.config, stack=stack, embedding=table, final_norm=norm, num_parameters=count)
        )

    def empty_stack(self) -> Stack:
        """Of this shape, for the machine's kernels and as many threads as PyTorch has now."""
        return Stack(shape_of(self.config), self.config.num_layers, threads=num_threads(), kind=wanted_kind() or "")

    @torch.no_grad()
    def _read(self, names: Iterable[str]) -> dict[str, Tensor]:
        with torch_threads(1):  # copies wait for memory; on busy cores several threads would wait for each other
            read = {name: _unfilled(self._asked[name]) for name in names}
            self.stored.fill(read)
        return read

    def _norm(self, read: Mapping[str, Tensor], name: str) -> Tensor | None:
        """A norm's weight [D] float32, a layer norm's followed by its bias [2 D]; None where there is no norm."""
        weight = read.get(f"{name}.weight")
        if weight is None or self.config.norm != "layer":
            return weight if weight is None else weight.float()
        bias = read.get(f"{name}.bias", torch.zeros_like(weight))
        return torch.cat((weight, bias)).float()

    @torch.no_grad()
    def _weight(self, read: Mapping[str, Tensor], name: str) -> Packable:
        """The linear map of this name, as it was read or rounded now."""
        bias = read.get(f"{name}.bias")
        bias = None if bias is None else bias.float()
        whole, quant = read.get(f"{name}.weight"), self.config.quant
        if whole is None:
            assert quant is not None
            return rounded_weight(quant, name, read, bias)
        if self.rounding is None or not self.rounding.covers(name):
            return Weight(bits=16, values=whole, bias=bias)
        bits, group = self.rounding.bits_at(name), self.rounding.group_size
        grid.require_groups(name, whole.shape[1], bits, group)
        scales = grid.find_scales(whole, bits, group)
        values = grid.pack(grid.round_to_grid(whole, scales, bits, group), bits)
        return Weight(bits=bits, values=values, scales=scales, bias=bias, group=group)


def tensors_for(config: ModelConfig, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Our names of all tensors of a model that the kernels know, each as an empty one of its shape and type.

    `Decoder`'s names and shapes, without a module.
    """
    width, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
    rows, kv_rows = config.num_heads * head, config.num_kv_heads * head
    biased = config.norm == "layer" and config.norm_bias

    def norm(name: str, dim: int, *, wanted: bool = True) -> Iterator[tuple[str, Tensor]]:
        kind = torch.promote_types(dtype, torch.float32) if config.norm == "rms32" else dtype
        for part in ("weight", "bias")[: wanted + (wanted and biased)]:
            yield f"{name}.{part}", torch.empty(dim, dtype=kind, device="meta")

    def linear(name: str, num_in: int, num_out: int, *, bias: bool = False) -> Iterator[tuple[str, Tensor]]:
        kept = {} if config.quant is None else rounded_tensors(config.quant, name, num_in, num_out)
        plain = f"{name}.weight" if name != "embedding" else name
        yield from (kept or {plain: torch.empty(num_out, num_in, dtype=dtype, device="meta")}).items()
        if bias:
            yield f"{name}.bias", torch.empty(num_out, dtype=dtype, device="meta")

    yield from linear("embedding", width, config.vocab_size)
    for i in range(config.num_layers):
        at = f"layers.{i}."
        yield from norm(at + "attn_norm", width, wanted=config.pre_norm)
        yield from norm(at + "attn_post_norm", width, wanted=config.post_norm)
        yield from norm(at + "mlp_norm", width, wanted=config.pre_norm and not config.shared_norm)
        yield from norm(at + "mlp_post_norm", width, wanted=config.post_norm)
        yield from norm(at + "q_norm", rows if config.qk_norm_whole else head, wanted=config.qk_norm)
        yield from norm(at + "k_norm", kv_rows if config.qk_norm_whole else head, wanted=config.qk_norm)
        yield from linear(at + "qkv", width, rows + 2 * kv_rows, bias=config.qkv_bias)
        yield from linear(at + "out", rows, width, bias=config.out_bias)
        yield from linear(at + "up", width, (1 + config.gated_mlp) * inner, bias=config.mlp_bias)
        yield from linear(at + "down", inner, width, bias=config.mlp_bias)
    yield from norm("final_norm", width)
    yield from linear("lm_head", width, config.vocab_size)


def _unfilled(like: Tensor) -> Tensor:
    """In memory; floats are NaN, so that what is not read shows."""
    made = torch.empty(like.shape, dtype=like.dtype)
    return made.fill_(float("nan")) if made.is_floating_point() else made
