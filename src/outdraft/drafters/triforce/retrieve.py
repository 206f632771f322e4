"""Which chunks of a text matter to its last token: those whose mean key its queries meet most.

    keys    [ 0..7 | 8..15 | 16..23 | ... | tail ]     the first chunk and what fills no chunk are always kept
    score     kept    q.m1    q.m2    ...   kept       the best of the others, as many as the budget holds

Sun et al., "TriForce", 2024, https://arxiv.org/abs/2404.11912. Data in: keys [Hkv, n, d] and queries [H, d]; data out:
row numbers [Hkv, m], ascending, each head for itself.
"""

import torch
from torch import Tensor


def retrieve_rows(keys: Tensor, queries: Tensor, budget: int, chunk: int) -> Tensor:
    """At most `budget` rows, of which the tail is part, but never less than the first chunk and the tail."""
    kv_heads, length, width = keys.shape
    whole = length // chunk
    tail = length - whole * chunk
    count = min(whole, max(1, (budget - tail) // chunk))
    means = keys[:, : whole * chunk].reshape(kv_heads, whole, chunk, width).float().mean(2)  # [Hkv, whole, d]
    grouped = queries.float().reshape(kv_heads, -1, width)  # [Hkv, H / Hkv, d]
    scores = torch.einsum("kgd,kcd->kc", grouped, means)
    scores[:, 0] = torch.inf
    best = scores.topk(count, dim=-1).indices.sort(-1).values  # [Hkv, count]
    within = torch.arange(chunk, device=keys.device)
    rows = (best[:, :, None] * chunk + within).flatten(1)
    rest = torch.arange(whole * chunk, length, device=keys.device).expand(kv_heads, -1)
    return torch.cat([rows, rest], 1)
