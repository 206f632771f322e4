"""Which rows of a text a small view keeps.

    streaming   [ sinks | ................. | window ]   the first few and the last: Xiao et al. 2023,
                                                         https://arxiv.org/abs/2309.17453
    snapkv      [ ..#....##.......#........ | window ]   what the window's queries look at most, each head for itself:
                                                         Li et al. 2024, https://arxiv.org/abs/2404.14469
Data in: numbers of rows, or keys [Hkv, n, d] and queries [w, H, d]; data out: row numbers, ascending.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_POOL = 7  # neighbours that a row's score is averaged over, so that what stands together stays together


def streaming_rows(length: int, sinks: int, budget: int, device: torch.device) -> Tensor:
    """Row numbers [min(budget, length)]."""
    window = torch.arange(max(min(sinks, budget), length - budget + sinks), length, device=device)
    return torch.cat([torch.arange(min(sinks, length), device=device), window])


def snapkv_rows(keys: Tensor, queries: Tensor, budget: int) -> Tensor:
    """Row numbers [Hkv, budget]: the last w, which the queries [w, H, d] belong to, and the best of those before."""
    kv_heads, length, width = keys.shape
    count = queries.shape[0]
    grouped = queries.to(keys.dtype).transpose(0, 1).reshape(kv_heads, -1, width)  # [Hkv, H / Hkv * w, d]
    scores = (grouped @ keys.transpose(1, 2)).float() * width**-0.5  # [Hkv, H / Hkv * w, n]
    place = torch.arange(length, device=keys.device)
    own = torch.arange(length - count, length, device=keys.device).repeat(grouped.shape[1] // count)
    scores = scores.masked_fill(place[None, None] > own[None, :, None], -torch.inf)
    attention = scores.softmax(-1).sum(1)[:, : length - count]  # [Hkv, n - w]
    pooled = F.avg_pool1d(attention, _POOL, stride=1, padding=_POOL // 2, count_include_pad=False)
    best = pooled.topk(budget - count, dim=-1).indices.sort(-1).values
    window = torch.arange(length - count, length, device=keys.device).expand(kv_heads, -1)
    return torch.cat([best, window], 1)
