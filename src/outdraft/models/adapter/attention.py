"""The attention function that layers of `transformers` call in place of their own.

    their layer:   q [1, H, N, d], k, v [1, Hkv, N, d]   -->   attend(module, q, k, v, ...)
    of this pass:  an `AttentionContext`, by a context variable: rows go into our cache under `module.layer_idx`

Registered by name in `transformers.AttentionInterface`; without an entry in their registry of masks they make none, so
which row sees which is said by our context alone. Layers may differ in their heads: all are filled up with zeros to one
shape, that of the cache, which changes no sum.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from outdraft.nn.branches import BranchContext
from outdraft.nn.cached import CachedContext
from outdraft.nn.context import AttentionContext, CausalContext, WatchedContext
from outdraft.options.errors import CapabilityError

NAME = "outdraft"
KNOWN = set(
    """
    dropout scaling sliding_window softcap s_aux position_ids cache_position is_causal use_cache output_attentions
    output_hidden_states output_router_logits return_dict
    """.split()
)  # what a layer may hand over besides; None and False say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadShape:
    """Heads as a layer makes them, or as the cache keeps them."""

    num_heads: int
    num_kv_heads: int
    head_dim: int  # of queries and keys
    value_dim: int


class Attending(Protocol):
    """One pass, as their layers see it."""

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]) -> Tensor:
        """q [1, H, N, d], k and v [1, Hkv, N, d] -> [1, N, H, dv]."""


_pass: ContextVar[Attending] = ContextVar("outdraft_pass")


@contextmanager
def attending(one: Attending) -> Iterator[None]:
    """While this lasts, their layers attend by `one` (in this thread)."""
    token = _pass.set(one)
    try:
        yield
    finally:
        _pass.reset(token)


@contextmanager
def removing(handles: Iterable[RemovableHandle]) -> Iterator[None]:
    """Hooks that are there while this lasts."""
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def is_attending(one: Attending) -> bool:
    """Whether it is this pass that runs now, in this thread."""
    return _pass.get(None) is one


def register(library: Any) -> None:
    """Make `attend` known to transformers, by its name."""
    library.AttentionInterface.register(NAME, attend)


def attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **options: Any
) -> tuple[Tensor, None]:
    """What transformers calls: -> ([1, N, H, dv], no weights)."""
    with torch._C.DisableTorchFunction():  # our own attention keeps rows apart, or need not
        return _pass.get().attend(module, query, key, value, attention_mask, options), None


class ContextAttention:
    """`Attending` over an `AttentionContext` of ours; `kept` is the cache's shape, `dtype` what rows are kept in."""

    def __init__(self, context: AttentionContext, kept: HeadShape, dtype: torch.dtype) -> None:
        self._context = context
        self._kept = kept
        self._dtype = dtype

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any, options: dict[str, Any]) -> Tensor:
        """One layer's rows, filled up to the cache's shape and cut again."""
        layer: Any = module.layer_idx
        kept, sinks = self._kept, options.get("s_aux")
        heads, value_dim, scale = q.shape[1], v.shape[-1], options.get("scaling") or q.shape[-1] ** -0.5
        group = heads // k.shape[1]
        wanted = v.dtype
        q = _filled(q.to(self._dtype), group * kept.num_kv_heads, kept.head_dim)
        k = _filled(k.to(self._dtype), kept.num_kv_heads, kept.head_dim)
        v = _filled(v.to(self._dtype), kept.num_kv_heads, kept.head_dim)
        told: dict[str, Any] = {"window": options.get("sliding_window"), "scale": scale, "cap": options.get("softcap")}
        if sinks is not None:
            if not isinstance(self._context, CausalContext | CachedContext | BranchContext | WatchedContext):
                raise CapabilityError(
                    f"a model with attention sinks cannot be run over a {type(self._context).__name__}: take a "
                    "drafter that does not run the target's own layers"
                )
            told["sinks"] = F.pad(sinks, (0, q.shape[1] - heads))
        out = self._context.attend(layer, q, k, v, **told)
        return out.view(1, len(q), -1, kept.head_dim)[:, :, :heads, :value_dim].to(wanted)


def _filled(rows: Tensor, heads: int, width: int) -> Tensor:
    """[1, h, N, w] -> [N, heads, width], zeros where nothing was."""
    rows = rows[0].transpose(0, 1)  # [N, h, w]
    missing = (0, width - rows.shape[2], 0, heads - rows.shape[1])
    return F.pad(rows, missing) if any(missing) else rows
