"""Log probabilities of emitted tokens, drafted ones included, and of prompts: read from the row that predicted them."""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.logprobs import LogprobsMode, TokenLogprobs
from outdraft.core.sequence import Sequence
from outdraft.sampling.warp import processed_logits


def token_logprobs(seq: Sequence, token: int, logits: Tensor, distribution: Tensor) -> TokenLogprobs:
    """`logits` [V] raw and `distribution` [V] warped at the node that predicted `token`, which comes next in `seq`."""
    num_top, mode = seq.request.params.logprobs or 0, seq.request.logprobs_mode
    raw = torch.log_softmax(logits.double(), -1)
    warped = torch.log(distribution.double())
    top_raw, top_warped = _top(raw, num_top), _top(warped, num_top)
    own, top = float(raw[token]), top_raw
    if mode == "processed_logprobs":
        own, top = float(warped[token]), top_warped
    elif mode != "raw_logprobs":
        values = logits if mode == "raw_logits" else processed_logits(seq, logits, distribution)
        own, top = float(values[token]), _top(values.double(), num_top)
    return TokenLogprobs(
        token=token,
        logprob=own,
        top=top,
        raw=float(raw[token]),
        warped=float(warped[token]),
        top_raw=top_raw,
        top_warped=top_warped,
    )


def prompt_token_logprobs(tokens: Seq[int], logits: Tensor, num_top: int, mode: LogprobsMode) -> list[TokenLogprobs]:
    """`logits` [n, V] at the rows that predict these n tokens of a prompt.

    A prompt was not sampled, so no setting processes its logits: both are the raw ones.
    """
    wide = logits.double()
    raw = torch.log_softmax(wide, -1)
    chosen, tops = _chosen(raw, tokens), _tops(raw, num_top)
    shown = (chosen, tops) if mode.endswith("logprobs") else (_chosen(wide, tokens), _tops(wide, num_top))
    return [
        TokenLogprobs(token=token, logprob=value, top=top, raw=one, warped=one, top_raw=top_raw, top_warped=top_raw)
        for token, value, top, one, top_raw in zip(tokens, *shown, chosen, tops, strict=True)
    ]


def _chosen(values: Tensor, tokens: Seq[int]) -> list[float]:
    """Each row's value [n, V] of its token."""
    return values.gather(-1, torch.tensor(tokens, device=values.device)[:, None])[:, 0].tolist()  # type: ignore[no-any-return]


def _top(values: Tensor, n: int) -> tuple[tuple[int, float], ...]:
    return _tops(values[None], n)[0]


def _tops(values: Tensor, n: int) -> list[tuple[tuple[int, float], ...]]:
    """The n largest values of each row [m, V] and whose they are; of a row that forbids tokens perhaps fewer."""
    best = values.topk(min(n, values.shape[-1]))
    rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [tuple((i, v) for i, v in zip(*row, strict=True) if v > -torch.inf) for row in rows]
