"""The chain loop of every model-based drafter: feed a token, choose the next, until the budget or the confidence ends.

    step 0  feed pending -> logits -> t1      sequences with a smaller budget, or an unsure token, drop out;
    step 1  feed t1      -> logits -> t2      the others go on together, one row each
    ...

A low-confidence token is kept and only ends its chain: dropping it would bend the distribution of a sampled guess. A
judge of hidden states is asked when a token has been fed, and ends the chain before the next is chosen: it knows no
tokens but those that are kept. Where the network's memory is full after the first step, the chains end where they
stand: dropping them would keep those that an unsure token had ended before. Data in: sequences, depths and the network;
data out: one chain for each sequence.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.network import ChainNetwork
from outdraft.drafters.shared.choose import Chooser, Sample
from outdraft.drafters.shared.limits import Cutoff
from outdraft.options.errors import CacheFullError


def stepped_chains(
    seqs: Seq[Sequence], depths: Seq[int], network: ChainNetwork, cutoffs: Seq[Cutoff], *, sample: Sample
) -> list[Draft]:
    """`grow_chains`, each token chosen here. Raises `CacheFullError` where there is no room for the pending tokens."""
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
        try:
            logits = network.feed(step, rows + closing, tokens, len(rows))
        except CacheFullError:
            if not step:
                raise
            if network.feed_last:  # no token may stay unfed; all of this step were to be fed, whatever their values
                for i in rows + closing:
                    del drafted[i][-1], surenesses[i][-1], distributions[i][step - 1 :]
            break
        if step and (kept := _judged(rows, network, cutoffs, survivals, step)) is not None:
            rows, logits = [rows[at] for at in kept], logits[kept]
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
            if cutoffs[i].judge is None:
                survivals[i] *= cutoffs[i].chance(sure)
            is_likely = cutoffs[i].judge is not None or survivals[i] >= cutoffs[i].path
            if step < depths[i] and sure >= cutoffs[i].token and is_likely:
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


def _judged(
    rows: list[int], network: ChainNetwork, cutoffs: Seq[Cutoff], survivals: list[float], step: int
) -> list[int] | None:
    """Which of the `rows`, whose last tokens have been fed, go on, where a judge was asked; `survivals` are entered."""
    if network.states is None or not any(cutoffs[i].judge is not None for i in rows):
        return None
    states, ended = network.states(), set()  # [num_open, W]
    for judge in dict.fromkeys(cutoffs[i].judge for i in rows):
        if judge is None:
            continue
        asked = [at for at, i in enumerate(rows) if cutoffs[i].judge == judge]
        for at, chance in zip(asked, judge.chances(states[asked]).tolist(), strict=True):
            survivals[rows[at]] *= chance
            if step >= judge.least and survivals[rows[at]] < cutoffs[rows[at]].path:
                ended.add(at)
    return [at for at in range(len(rows)) if at not in ended]
