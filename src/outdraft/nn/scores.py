"""Attention of given queries, keys and values, with or without a soft cap on the scores, and with or without sinks.

A cap c turns a score s into c * tanh(s / c) before the mask and the softmax (Gemma 2, 2024,
https://arxiv.org/abs/2408.00118). A sink is one more score in a head's softmax, which takes its share of the sum and
has no value (gpt-oss, 2025, https://arxiv.org/abs/2508.10925). With neither this is PyTorch's own attention, which has
no such options.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    cap: float | None = None,
    mask: Tensor | None = None,
    is_causal: bool = False,
    sinks: Tensor | None = None,
) -> Tensor:
    """q [B, H, n, d], k and v [B, Hkv, T, d] -> [B, H, n, d]; H is a multiple of Hkv.

    mask: [n, T] or wider, bool (who is seen) or numbers that are added to the scores. `is_causal` is for n = T.
    sinks: [H, 1] or [H, n], a score of no key.
    """
    group = q.shape[1] // k.shape[1]
    if cap is None and sinks is None:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale, enable_gqa=group > 1
        )
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.matmul(q, k.transpose(-1, -2)).to(_wide(q)) * scale
    if cap is not None:
        scores = capped(scores, cap)
    if is_causal:
        mask = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return torch.matmul(shares(scores, sinks).to(v.dtype), v)


def shares(scores: Tensor, sinks: Tensor | None) -> Tensor:
    """The softmax of scores [..., H, n, T]. `sinks` is as in `attention`; what they take is left out."""
    if sinks is None:
        return torch.softmax(scores, -1)
    column = sinks.to(scores)[..., None].expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat((scores, column), -1), -1)[..., :-1]


def capped(scores: Tensor, cap: float) -> Tensor:
    """cap * tanh(scores / cap), elementwise."""
    return torch.tanh(scores / cap) * cap


def _wide(like: Tensor) -> torch.dtype:
    return torch.float64 if like.dtype == torch.float64 else torch.float32
