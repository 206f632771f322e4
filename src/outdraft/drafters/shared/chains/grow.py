"""A chain for each sequence, by the quickest way that this network and this sequence allow.

    stepped    step 0  feed pending -> logits -> t1      sequences with a smaller budget, or an unsure token, drop out;
               step 1  feed t1      -> logits -> t2      the others go on together, one row each
    native     one call of the kernels; a chain that falls below its cutoff is cut there afterwards
    recorded   one recorded pass; the host builds the drafts without having seen a token of them

A sequence's way does not depend on who else is in the batch, but for a recorded pass, which is for all or none; the
guesses are the same. A low-confidence token is kept and only ends its chain: dropping it would bend the distribution of
a sampled guess. A judge of hidden states is asked when a token has been fed, and ends the chain before the next is
chosen: it knows no tokens but those that are kept. Where the network's memory is full after the first step, the chains
end where they stand: dropping them would keep those that an unsure token had ended before. Data in: sequences, depths,
the network and when chains end; data out: one chain each.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from math import nan

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.network import ChainNetwork, RunChains
from outdraft.drafters.shared.choose import Chooser, Sample, check_finite, takes_argmax, takes_plain_argmax
from outdraft.drafters.shared.limits import Cutoff
from outdraft.kernels.decoder.chains import Draw
from outdraft.options.errors import CacheFullError, CapabilityError
from outdraft.sampling.draft_coins import KeyedDraftCoins
from outdraft.sampling.warp import warp_of


def grow_chains(
    seqs: Seq[Sequence], depths: Seq[int], network: ChainNetwork, cutoffs: Seq[Cutoff], *, sample: Sample
) -> list[Draft]:
    """A chain of at most `depths[i]` draft tokens for `seqs[i]`; depth 0 is node 0 alone and is never fed.

    If any of the `cutoffs` asks for confidences, every draft has them. Kernels know bare probabilities only:
    chains that end by calibrated ones are stepped, so that no token is drawn behind their end; and so are those that a
    judge of hidden states ends. Raises `CapabilityError` for such a judge where the network has no states.
    """
    asked = any(cutoff.is_asked for cutoff in cutoffs)
    judged = any(cutoff.judge is not None for cutoff in cutoffs)
    if judged and network.states is None:
        raise CapabilityError("a budget brings a judge of hidden states, and this drafter hands none over")
    if network.record is not None and not (asked or judged) and all(takes_plain_argmax(seq, sample) for seq in seqs):
        return recorded_chains(seqs, depths, network.record)
    if network.chain is None:
        return stepped_chains(seqs, depths, network, cutoffs, sample=sample)
    own = [
        i
        for i, (seq, cutoff) in enumerate(zip(seqs, cutoffs, strict=True))
        if depths[i] > 0 and cutoff.calibration is None and cutoff.judge is None and chooses_natively(seq, sample)
    ]
    drafts: list[Draft] = []
    if len(own) < len(seqs):
        rest = [0 if i in own else depth for i, depth in enumerate(depths)]
        drafts = stepped_chains(seqs, rest, network, cutoffs, sample=sample)
    if own:
        made = native_chains(seqs, own, depths, network.chain, cutoffs if asked else None, sample=sample)
        if not drafts:
            return made
        for i, draft in zip(own, made, strict=True):
            drafts[i] = draft
    return drafts


def stepped_chains(
    seqs: Seq[Sequence], depths: Seq[int], network: ChainNetwork, cutoffs: Seq[Cutoff], *, sample: Sample
) -> list[Draft]:
    """`grow_chains`, each token chosen here. Raises `CacheFullError` where there is no room for the pending tokens."""
    drafted: list[list[int]] = [[] for _ in seqs]
    distributions: list[list[Tensor]] = [[] for _ in seqs]
    rows = [i for i, depth in enumerate(depths) if depth > 0]
    closing: list[int] = []
    asked = any(cutoff.is_asked for cutoff in cutoffs)
    told = any(cutoff.judge is not None and cutoff.judge.reads_probability for cutoff in cutoffs)
    choose = Chooser(seqs, sample=sample, confident=told or (asked and network.chances is None))
    surenesses = [[1.0] for _ in seqs]  # of each node, the pending token's first
    survivals = [1.0] * len(seqs)
    tokens = [seqs[i].pending for i in rows]
    step, feed = 0, network.steps(depths)
    while rows or closing:
        try:
            logits = feed(step, rows + closing, tokens, len(rows))
        except CacheFullError:
            if not step:
                raise
            if network.feed_last:  # no token may stay unfed; all of this step were to be fed, whatever their values
                for i in rows + closing:
                    del drafted[i][-1], surenesses[i][-1], distributions[i][step - 1 :]
            break
        if step and (kept := _judged(rows, network, cutoffs, survivals, surenesses, step)) is not None:
            rows, logits = [rows[at] for at in kept], logits[kept]
        if not rows:
            break
        chosen = choose(rows, logits, drafted)
        if asked and network.chances is not None:
            chosen.confidences = network.chances().tolist()
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
    rows: list[int],
    network: ChainNetwork,
    cutoffs: Seq[Cutoff],
    survivals: list[float],
    surenesses: Seq[list[float]],
    step: int,
) -> list[int] | None:
    """Which of the `rows`, whose last tokens have been fed, go on, where a judge was asked; `survivals` are entered."""
    if network.states is None or not any(cutoffs[i].judge is not None for i in rows):
        return None
    states, ended = network.states(), set()  # [num_open, W]
    for judge in dict.fromkeys(cutoffs[i].judge for i in rows):
        if judge is None:
            continue
        asked = [at for at, i in enumerate(rows) if cutoffs[i].judge == judge]
        told = torch.tensor([surenesses[rows[at]][step] for at in asked], device=states.device)
        for at, chance in zip(asked, judge.chances(states[asked], told).tolist(), strict=True):
            survivals[rows[at]] *= chance
            if step >= judge.least and survivals[rows[at]] < cutoffs[rows[at]].path:
                ended.add(at)
    return [at for at in range(len(rows)) if at not in ended]


def chooses_natively(seq: Sequence, sample: Sample) -> bool:
    """Whether the kernels can choose this sequence's tokens.

    They know the best token, and draws from a distribution warped by temperature, min-p, top-k and top-p with the keyed
    noise of production; not what edits logits (penalties, biases, masks), truncates by typical_p or asks other coins.
    """
    if seq.edits_logits:
        return False
    if takes_argmax(seq, sample):
        return True
    return seq.request.params.typical_p == 1 and isinstance(seq.draft_coins(seq), KeyedDraftCoins)


def native_chains(
    seqs: Seq[Sequence],
    rows: list[int],
    depths: Seq[int],
    run: RunChains,
    cutoffs: Seq[Cutoff] | None,
    *,
    sample: Sample,
) -> list[Draft]:
    """A chain for each of the sequences `rows`. `cutoffs`: of all sequences; None: confidences are not wanted."""
    draws = [_draw(seqs[i], sample, depths[i]) for i in rows]
    least = None if cutoffs is None else [(cutoffs[i].token, cutoffs[i].path) for i in rows]
    found = run(rows, [depths[i] for i in rows], draws, least)
    check_finite(seqs, rows, [nan if -1 in path else 0.0 for path in found.tokens])
    if cutoffs is None or found.surenesses is None:
        return [
            chain([seqs[i].pending, *path], distribution)
            for i, path, distribution in zip(rows, found.tokens, found.distributions, strict=True)
        ]
    return [
        _cut(seqs[i].pending, path, distribution, sure, cutoffs[i])
        for i, path, distribution, sure in zip(rows, found.tokens, found.distributions, found.surenesses, strict=True)
    ]


def _cut(pending: int, path: list[int], distribution: Tensor | None, sure: list[float], cutoff: Cutoff) -> Draft:
    """A native chain as far as its cutoff lets it: the token that falls below is the last."""
    count, survival = 0, 1.0
    for each in sure:
        count += 1
        survival *= each
        if each < cutoff.token or survival < cutoff.path:
            break
    q = distribution[:count] if distribution is not None else None
    return chain([pending, *path[:count]], q, confidence=torch.tensor([1.0, *sure[:count]]))


def _draw(seq: Sequence, sample: Sample, depth: int) -> Draw | None:
    """How the next `depth` tokens are chosen; None: the best ones."""
    if takes_argmax(seq, sample):
        return None
    coins, params = seq.draft_coins(seq), seq.request.params
    assert isinstance(coins, KeyedDraftCoins)
    return Draw(keys=coins.chain_keys(depth), warp=warp_of(params))


def recorded_chains(
    seqs: Seq[Sequence], depths: Seq[int], record: Callable[[list[int], list[int]], Tensor]
) -> list[Draft]:
    """A chain of `depths[i]` tokens for each sequence; depth 0 is the pending token alone."""
    drafts = [chain([seq.pending]) for seq in seqs]
    rows = [i for i, depth in enumerate(depths) if depth > 0]
    if rows:
        tokens = record(rows, [depths[i] for i in rows])  # [1 + deepest, rows]
        for column, i in enumerate(rows):
            drafts[i] = chain(tokens[: 1 + depths[i], column])
    return drafts
