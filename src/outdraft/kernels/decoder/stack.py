"""A decoder's layers and head in packed form: one native call a pass.

Data in: hidden states [N, D] float32 and their positions, rotary tables [T, rotary] (of several kinds of layers: one
behind another, [kinds, T, 1, rotary]), and for each sequence where its
rows stand in its cache; data out: hidden states, taps, logits. Keys and values of the new rows are left in the cache.
"""

import ctypes
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from outdraft.core.skip import NO_SKIP, Skip
from outdraft.kernels.declared import CLinear, CNorms, CPass, CShape
from outdraft.kernels.decoder.matrix import Packable
from outdraft.kernels.decoder.rows import Span, describe, ints, places, table_size
from outdraft.kernels.library import check, pointer, require_library
from outdraft.options.errors import CapabilityError

ACTIVATIONS = ("silu", "gelu_tanh")  # Activation of native/model.h
_NORMS = ("rms", "layer")  # Norm of native/model.h
_NONE: Mapping[int, Tensor] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class StackShape:
    """The widths of a decoder: what the kernels need to lay out its weights."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    rotary: int  # turned channels of a head
    eps: float
    scale: float  # of the scores
    added: float = 1.0  # what attention and feed-forward add is multiplied by
    logit_scale: float = 1.0
    score_cap: float = 0.0  # x becomes cap * tanh(x / cap); 0: it stays
    logit_cap: float = 0.0
    # Queries are multiplied by 1 + growth * ln(1 + position // first_len), where positions turn them.
    growth: float = 0.0
    first_len: int = 1
    activation: str = "silu"  # one of ACTIVATIONS
    gated: bool = True
    norm: str = "rms"  # or "layer": a weight followed by its bias
    norms_whole: bool = False  # queries and keys are normed over all heads at once
    parallel: bool = False  # the feed-forward reads what attention reads


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """One layer's weights; norms are float32."""

    qkv: Packable
    out: Packable
    up: Packable  # gate | up
    down: Packable
    attn_norm: Tensor | None  # None: attention reads the state as it is, or what an entrance puts in its place
    mlp_norm: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    window: int  # keys that a row sees; 0: all
    attn_post: Tensor | None = None  # of what attention adds
    mlp_post: Tensor | None = None
    turns: int = 0  # which of the rotary tables; -1: positions turn nothing


class Stack:
    """Layers and head on a team of `threads` threads; `kind`: which instruction set, "" = the best."""

    def __init__(self, shape: StackShape, num_layers: int, *, threads: int, kind: str = "") -> None:
        if shape.head_dim % 32 or shape.head_dim > 512 or shape.hidden % 32 or shape.inner % 32:
            raise CapabilityError(
                "the native kernels need widths that are multiples of 32 and heads of at most 512; this decoder "
                f"has {shape}"
            )
        self.native = native = require_library()
        self.shape = shape
        self.num_out = shape.vocab  # of the head
        self.threads = threads
        self.kind = kind or native.od_best_kernels().decode()
        told = asdict(shape) | {"activation": ACTIVATIONS.index(shape.activation), "norm": _NORMS.index(shape.norm)}
        described = CShape(**told)
        self.lender: object = None  # what keeps lent memory, if nothing else does
        self.handle = check(native.od_model_new(ctypes.byref(described), num_layers, threads, kind.encode()))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.native.od_model_free(self.handle)

    def set_layer(self, index: int, parts: LayerParts) -> None:
        linears = (CLinear * 4)(*(w.describe() for w in (parts.qkv, parts.out, parts.up, parts.down)))
        norms = CNorms(
            *map(
                pointer, (parts.attn_norm, parts.mlp_norm, parts.attn_post, parts.mlp_post, parts.q_norm, parts.k_norm)
            )
        )
        made = self.native.od_model_set_layer(
            self.handle, index, linears, ctypes.byref(norms), parts.window, parts.turns
        )
        check(made)

    def set_head(self, head: Packable, final_norm: Tensor | None) -> None:
        """`final_norm`: None for a head that is never asked to norm."""
        check(self.native.od_model_set_head(self.handle, ctypes.byref(head.describe()), pointer(final_norm)))

    def read_head(self) -> Tensor | None:
        """The head's matrix [V, D] bf16 as it was packed; None where it was rounded to integers or has a bias."""
        out = torch.empty(self.shape.vocab, self.shape.hidden, dtype=torch.bfloat16)
        return out if self.native.od_model_read_head(self.handle, out.data_ptr()) else None

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of the head's matrix, which are the embedding's where the two are tied: ids [N] -> [N, D] float32."""
        ids, out = ids.long().contiguous(), torch.empty(len(ids), self.shape.hidden)
        check(self.native.od_model_read_rows(self.handle, ids.data_ptr(), len(ids), out.data_ptr()))
        return out

    def unit_bytes(self, unit: int) -> int:
        """The size of a unit as one block of bytes. Unit i is layer i, the one behind the last layer is the head."""
        return check(self.native.od_model_unit_bytes(self.handle, unit))

    def write_unit(self, unit: int, address: int) -> None:
        """Copy a packed unit to `unit_bytes` bytes of memory."""
        check(self.native.od_model_write_unit(self.handle, unit, address))

    def lend_unit(self, unit: int, address: int, size: int) -> None:
        """Compute with what `write_unit` wrote, where it lies (at a multiple of 64 bytes), until another is lent.

        The caller keeps the memory; what the unit held before is let go. Raises `RuntimeError` where the `size` bytes
        are no such unit of this shape; then nothing has changed.
        """
        check(self.native.od_model_lend_unit(self.handle, unit, address, size))

    @property
    def num_bytes(self) -> int:
        """What the products of a pass over all layers and the head read: packed weights, scales, biases."""
        return int(self.native.od_model_bytes(self.handle))

    def read(self) -> int:
        """Read the packed weights and do nothing with them (their exclusive or): no pass can take less time."""
        return int(self.native.od_model_read(self.handle))

    def run(
        self,
        hidden: Tensor,
        positions: Seq[int],
        cos: Tensor,
        sin: Tensor,
        spans: Seq[Span],
        layers: Seq[int],
        *,
        skip: Skip = NO_SKIP,
        taps: Mapping[int, Tensor] = _NONE,
        middles: Mapping[int, Tensor] = _NONE,
        queries: Mapping[int, Tensor] = _NONE,
    ) -> None:
        """The given layers, but for what `skip` leaves out, over hidden [N, D] float32 at `positions`, in place.

        cos and sin [T, rotary] or [kinds, T, 1, rotary] are of all positions that may come. Where to put what layer i
        leaves: `taps[i]` [N, D] the state after it, `middles[i]` the state after its attention, `queries[i]` [N, H, d]
        its queries, turned.
        """
        passed = CPass(
            hidden.data_ptr(),
            ints(positions),
            cos.data_ptr(),
            sin.data_ptr(),
            table_size(cos),
            len(positions),
            describe(spans),
            len(spans),
            ints(layers),
            len(layers),
            *(places(kept, layers) if kept else None for kept in (taps, middles, queries)),
            skip.flags(layers) if skip else None,
        )
        check(self.native.od_model_run(self.handle, ctypes.byref(passed)))

    def logits(self, hidden: Tensor, *, norm: bool) -> Tensor:
        """[M, D] float32 -> [M, V] float32; `norm`: the final norm first. A prompt's inner chunk has no such row."""
        hidden = hidden.contiguous()
        out = torch.empty(hidden.shape[0], self.shape.vocab)
        check(self.native.od_model_logits(self.handle, hidden.data_ptr(), hidden.shape[0], int(norm), out.data_ptr()))
        return out
