"""Rows of a pass that are not plain ids: vectors in place of tokens, prompt rows to be scored, tokens on a device."""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.sequence import Sequence


def prompt_rows_of(seq: Sequence, certain: int, start: int) -> range:
    """Those of its certain rows that predict a prompt token to be scored; the first certain one is row `start`."""
    if not seq.scores_prompt:
        return range(start, start)
    first = max(seq.num_cached, seq.num_prompt_scored)
    stop = max(first, min(seq.num_cached + certain, seq.prompt_len - 1))
    return range(start + first - seq.num_cached, start + stop - seq.num_cached)


def embeds_of(seq: Sequence, certain: int, draft: Draft | None) -> Tensor | None:
    """Vectors of a sequence's rows [r, D]: the prompt's for certain rows and the pending token, then the draft's."""
    num_nodes = draft.num_nodes if draft is not None else 0
    start = seq.num_cached
    own = vectors_of(seq, start, start + certain + num_nodes)
    if draft is None or draft.embeds is None:
        return own
    if own is None:
        return torch.nn.functional.pad(draft.embeds, (0, 0, certain, 0), value=torch.nan)
    below = torch.where(draft.embeds.isnan(), own[certain:], draft.embeds.to(own))
    return torch.cat([own[:certain], below])


def with_unread(tokens: Tensor, drafts: Seq[Draft | None], unread: Seq[int], row_starts: Seq[int]) -> Tensor:
    """`tokens` [R], with those of drafts that were made on a device and not read yet; then all are there."""
    made = [(i, draft.tokens) for i in unread if (draft := drafts[i]) is not None]
    if not made:
        return tokens
    device = made[0][1].device
    if len(made) == 1 and len(drafts) == 1 and len(made[0][1]) == len(tokens):
        return made[0][1]
    tokens = tokens.to(device)
    for i, own in made:
        tokens[row_starts[i + 1] - len(own) : row_starts[i + 1]] = own
    return tokens


def vectors_of(seq: Sequence, start: int, stop: int) -> Tensor | None:
    """The prompt's own vectors for tokens [start, stop): [n, D], NaN where the token's embedding is meant."""
    given = seq.request.prompt_embeds
    if given is None or start >= seq.prompt_len:
        return None
    own = given[start : min(stop, seq.prompt_len)]
    return torch.nn.functional.pad(own, (0, 0, 0, stop - start - len(own)), value=torch.nan)
