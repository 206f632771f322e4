"""The chain loop of every model-based drafter: feed a token, choose the next, until the budget or the confidence ends.

    step 0  feed pending -> logits -> t1      sequences with a smaller budget, or an unsure token, drop out;
    step 1  feed t1      -> logits -> t2      the others go on together, one row each
    ...

A low-confidence token is kept and only ends its chain: dropping it would bend the distribution of a sampled guess. Data
in: sequences, depths and the network; data out: one chain for each sequence.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.choose import Chooser, Sample
from outdraft.drafters.shared.limits import Cutoff


def stepped_chains(
    seqs: Seq[Sequence], depths: Seq[int], network: ChainNetwork, cutoffs: Seq[Cutoff], *, sample: Sample
) -> list[Draft]:
    """`grow_chains`, each token chosen here."""
    drafted: list[list[int]] = [[] for _ in seqs]
    distributions: list[list[Tensor]] = [[] for _ in seqs]
    rows = [i for i, depth in enumerate(depths) if depth > 0]
    closing: list[int] = []
    asked = any(cutoff.is_asked for cutoff in cutoffs)
    choose = Chooser(seqs, sample=sample, confident=asked)
    surenesses = [[1.0] for _ in seqs]  # of each node, the pending token's first
    survivals = [1.0] * len(seqs)
    tokens = [seqs[i].pending for i in rows]
    step = 0
    while rows or closing:
        logits = network.feed(step, rows + closing, tokens, len(rows))
        if not rows:
            break
        chosen = choose(rows, logits, drafted)
        step += 1
        open_rows, open_tokens, shut_rows, shut_tokens = [], [], [], []
        for i, token, distribution, sure in zip(
            rows, chosen.tokens, chosen.distributions, chosen.confidences, strict=True
        ):
            drafted[i].append(token)
            if distribution is not None:
                distributions[i].append(distribution)
            surenesses[i].append(sure)
            survivals[i] *= cutoffs[i].chance(sure)
            if step < depths[i] and sure >= cutoffs[i].token and survivals[i] >= cutoffs[i].path:
                open_rows.append(i)
                open_tokens.append(token)
            elif network.feed_last:
                shut_rows.append(i)
                shut_tokens.append(token)
        rows, closing, tokens = open_rows, shut_rows, open_tokens + shut_tokens
    return [
        chain(
            [seq.pending, *path],
            torch.stack(distribution) if distribution else None,
            confidence=torch.tensor(sure) if asked else None,
        )
        for seq, path, distribution, sure in zip(seqs, drafted, distributions, surenesses, strict=True)
    ]
