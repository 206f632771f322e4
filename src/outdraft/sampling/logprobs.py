"""Log probabilities of emitted tokens, drafted ones included, and of prompts: read from the row that predicted them."""

from collections.abc import Sequence as Seq

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


def prompt_token_logprobs(tokens: Seq[int], logits: Tensor, num_top: int) -> list[TokenLogprobs]:
    """`logits` [n, V] at the rows that predict these n tokens of a prompt.

    A prompt was not sampled, so no setting warps its distribution: both are the raw one.
    """
    raw = torch.log_softmax(logits.double(), -1)
    best = raw.topk(min(num_top, raw.shape[-1]))
    chosen = raw.gather(-1, torch.tensor(tokens, device=raw.device)[:, None])[:, 0]
    records = []
    for token, own, ids, values in zip(
        tokens, chosen.tolist(), best.indices.tolist(), best.values.tolist(), strict=True
    ):
        top = tuple((i, v) for i, v in zip(ids, values, strict=True) if v > -torch.inf)
        records.append(TokenLogprobs(token=token, raw=own, warped=own, top_raw=top, top_warped=top))
    return records


def _top(values: Tensor, n: int) -> tuple[tuple[int, float], ...]:
    best = values.topk(min(n, values.shape[0]))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return tuple((i, v) for i, v in pairs if v > -torch.inf)
