"""Log probabilities of emitted tokens, drafted ones included: read from the node that predicted them."""

import torch
from torch import Tensor

from outdraft.core.logprobs import TokenLogprobs


def token_logprobs(token: int, logits: Tensor, distribution: Tensor, num_top: int) -> TokenLogprobs:
    """`logits` [V] raw and `distribution` [V] warped at the node that predicted `token`."""
    raw = torch.log_softmax(logits.double(), -1)
    warped = torch.log(distribution.double())
    return TokenLogprobs(
        token=token,
        raw=float(raw[token]),
        warped=float(warped[token]),
        top_raw=_top(raw, num_top),
        top_warped=_top(warped, num_top),
    )


def _top(values: Tensor, n: int) -> tuple[tuple[int, float], ...]:
    best = values.topk(min(n, values.shape[0]))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple((i, v) for i, v in pairs if v > -torch.inf)
