"""One new row a text over a dense cache: three ways to compute it, of which a GPU takes the fastest that is right.

    keys, values of one layer   [S, Hkv, T, d]      slot s sees its positions 0 .. positions[s], the new one included

`by_products` and `by_sdpa` read `bound` positions of every slot and hide what is not there; `by_triton` is the engine's
own kernel over the same memory, seen as pages, and reads of each slot what it sees.
"""

import sys
from collections.abc import Callable
from time import perf_counter

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.core.cache import PAGE
from outdraft.nn.attention.rows import PagedRows

Attention = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # q [S, H, d], keys, values, scale -> [S, H * d]
Way = Callable[[Tensor, int, Tensor], Attention]  # positions [S], the bound and any layer's keys, once a pass


def by_products(positions: Tensor, bound: int, keys: Tensor) -> Attention:
    """Two batched products and a softmax in float32."""
    hidden = _hidden(positions, bound)  # [S, 1, 1, bound]

    def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        scores = (_grouped(q, keys) @ keys[:, :, :bound].mT).float() * scale
        weights = scores.masked_fill_(hidden, -torch.inf).softmax(-1).to(q.dtype)
        return (weights @ values[:, :, :bound]).flatten(1)

    return attend


def by_sdpa(positions: Tensor, bound: int, keys: Tensor) -> Attention:
    """PyTorch's attention; the query heads that share keys are its rows."""
    hidden = _hidden(positions, bound)
    mask = torch.zeros(hidden.shape, dtype=keys.dtype, device=keys.device).masked_fill_(hidden, -torch.inf)

    def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        rows, seen = _grouped(q, keys), slice(bound)
        out = F.scaled_dot_product_attention(
            rows, keys[:, :, seen], values[:, :, seen], attn_mask=mask.expand(*rows.shape[:3], bound), scale=scale
        )
        return out.flatten(1)

    return attend


def by_triton(positions: Tensor, bound: int, keys: Tensor) -> Attention:
    """The engine's kernel: a table names the pages of 16 positions."""
    from outdraft.nn.attention.triton_kernel import paged_attention

    count, kv_heads, length, width = keys.shape
    shape = ((count * kv_heads - kv_heads + 1) * (length // PAGE), kv_heads, PAGE, width)
    strides = (PAGE * width, length * width, width, 1)
    slots = torch.arange(count, device=keys.device)
    none, one = torch.zeros_like(slots), torch.ones_like(slots)
    rows = PagedRows(
        slots=none,
        positions=positions,
        owners=slots,
        sees=one[:, None],
        bases=positions,
        starts=slots,
        counts=one,
        tables=slots[:, None] * (kv_heads * length // PAGE) + torch.arange(bound // PAGE, device=keys.device),
        block_seqs=slots,
        block_rows=none,
        block=1,
    )

    def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
        pages, mixed = keys.as_strided(shape, strides), values.as_strided(shape, strides)
        return paged_attention(q, pages, mixed, rows, window=None, scale=scale)

    return attend


def choose(keys: Tensor, values: Tensor, heads: int) -> Way:
    """The fastest way over one layer's cache [S, Hkv, T, d], as filled by half; on a CPU PyTorch's own."""
    if keys.device.type == "cpu":
        return by_sdpa
    slots, _, length, width = keys.shape
    torch.manual_seed(0)
    positions = torch.randint(length // 8, length // 2, (slots,), device=keys.device)
    bound = -(-length // 2 // 64) * 64
    q = torch.randn(slots, heads, width, dtype=keys.dtype, device=keys.device)
    keys.normal_()
    values.normal_()
    expected = by_products(positions, bound, keys)(q, keys, values, width**-0.5)
    times: dict[str, float] = {}
    ways = {way.__name__: way for way in (by_products, by_sdpa, by_triton)}
    for name, way in ways.items():
        try:
            attend = way(positions, bound, keys)
            found = attend(q, keys, values, width**-0.5)
            if (found - expected).abs().max().item() < 0.05:
                torch.cuda.synchronize()
                began = perf_counter()
                for _ in range(10):
                    attend(q, keys, values, width**-0.5)
                torch.cuda.synchronize()
                times[name] = (perf_counter() - began) / 10
        except Exception as error:  # one way that this machine cannot take must not end the run
            sys.stdout.write(f"{name}: {type(error).__name__}: {str(error)[:200]}\n")
    keys.zero_()
    values.zero_()
    best = min(times, key=times.__getitem__)
    shown = ", ".join(f"{name} {1e3 * seconds:.3f}" for name, seconds in times.items())
    sys.stdout.write(f"attention of a layer, ms: {shown}; takes {best}\n")
    return ways[best]


def _hidden(positions: Tensor, bound: int) -> Tensor:
    """Which of the first `bound` positions a slot does not see: [S, 1, 1, bound]."""
    return (torch.arange(bound, device=positions.device) > positions[:, None])[:, None, None]


def _grouped(q: Tensor, keys: Tensor) -> Tensor:
    """[S, H, d] -> [S, Hkv, H / Hkv, d]."""
    return q.view(q.shape[0], keys.shape[1], -1, q.shape[2])
