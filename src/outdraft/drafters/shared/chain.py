"""The chain loop of every model-based drafter: feed a token, choose the next, until the budget or the confidence ends.

    step 0  feed pending -> logits -> t1      sequences with a smaller budget, or an unsure token, drop out;
    step 1  feed t1      -> logits -> t2      the others go on together, one row each
    ...

A low-confidence token is kept and only ends its chain: dropping it would bend the law of a sampled guess. Data in:
sequences and depths, and `feed`, which runs the network; data out: one chain for each sequence.
"""

from collections.abc import Sequence as Seq
from typing import Protocol

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import Chooser, Sample
from outdraft.drafters.shared.limits import floors


class Feed(Protocol):
    """The network, as the loop sees it."""

    def __call__(self, step: int, rows: list[int], tokens: list[int], num_open: int) -> Tensor:
        """Feed `tokens[j]` to sequence `rows[j]`, `step` places after its pending token.

        Returns the logits [num_open, V] of the first `num_open` rows; the rest are last tokens, fed only if the loop
        was told to feed them.
        """
        ...


def grow_chains(
    seqs: Seq[Sequence],
    depths: Seq[int],
    feed: Feed,
    *,
    sample: Sample,
    confidence_threshold: float = 0.0,
    budgets: Seq[Budget] | None = None,
    feed_last: bool = False,
) -> list[Draft]:
    """A chain of at most `depths[i]` draft tokens for `seqs[i]`; depth 0 is node 0 alone and is never fed.

    `confidence_threshold`: the drafter's own; `budgets` may ask for more. Whoever asks gets `Draft.confidence`.
    `feed_last`: also feed each chain's last token, whose logits nobody needs (its hidden state is wanted).
    """
    drafted: list[list[int]] = [[] for _ in seqs]
    laws: list[list[Tensor]] = [[] for _ in seqs]
    rows = [i for i, depth in enumerate(depths) if depth > 0]
    closing: list[int] = []
    ends = floors(len(seqs), confidence_threshold, budgets)
    asked = any(end.is_asked for end in ends)
    choose = Chooser(seqs, sample=sample, confident=asked)
    surenesses = [[1.0] for _ in seqs]  # of each node, the pending token's first
    survivals = [1.0] * len(seqs)
    tokens = [seqs[i].pending for i in rows]
    step = 0
    while rows or closing:
        logits = feed(step, rows + closing, tokens, len(rows))
        if not rows:
            break
        chosen = choose(rows, logits, drafted)
        step += 1
        open_rows, open_tokens, shut_rows, shut_tokens = [], [], [], []
        for i, token, law, sure in zip(rows, chosen.tokens, chosen.laws, chosen.confidences, strict=True):
            drafted[i].append(token)
            if law is not None:
                laws[i].append(law)
            surenesses[i].append(sure)
            survivals[i] *= sure
            if step < depths[i] and sure >= ends[i].token and survivals[i] >= ends[i].path:
                open_rows.append(i)
                open_tokens.append(token)
            elif feed_last:
                shut_rows.append(i)
                shut_tokens.append(token)
        rows, closing, tokens = open_rows, shut_rows, open_tokens + shut_tokens
    return [
        chain(
            [seq.pending, *path],
            torch.stack(law) if law else None,
            confidence=torch.tensor(sure) if asked else None,
        )
        for seq, path, law, sure in zip(seqs, drafted, laws, surenesses, strict=True)
    ]
