"""Chains in one native call, for the sequences whose tokens the kernels can choose; the others are stepped from Python.

The kernels know the best token, and draws from a law warped by temperature, min-p, top-k and top-p with the keyed noise
of production. Whatever depends on the text (penalties, biases) or asks other coins is stepped.
That is decided for each sequence by itself: a guess does not depend on who else is in the batch. Data in: sequences,
depths, and both ways to run the network; data out: one chain for each sequence.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from math import nan

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.policy import Budget
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chain import Feed, grow_chains
from outdraft.drafters.shared.choose import Sample, check_finite, takes_argmax
from outdraft.drafters.shared.limits import Floor, floors
from outdraft.kernels.guesser import Chains, Draw
from outdraft.sampling.coins import KeyedDraftCoins
from outdraft.sampling.warp import warp_of

Floors = list[tuple[float, float]] | None  # least probability of a token, of a path; None: confidences are not wanted
# Which sequences, depths, draws, floors:
RunChains = Callable[[list[int], list[int], list[Draw | None], Floors], Chains]


def grow_chains_natively(
    seqs: Seq[Sequence],
    depths: Seq[int],
    run: RunChains | None,
    feed: Feed,
    *,
    sample: Sample,
    confidence_threshold: float = 0.0,
    budgets: Seq[Budget] | None = None,
    feed_last: bool = False,
) -> list[Draft]:
    """`grow_chains`, by `run` where it is there and the kernels can choose, else by `feed`.

    Natively a chain that falls below its floor is cut there afterwards, and the call ends where all have fallen.
    """
    ends = floors(len(seqs), confidence_threshold, budgets)
    asked = any(end.is_asked for end in ends)
    own = [i for i, seq in enumerate(seqs) if depths[i] > 0 and run is not None and _chooses_natively(seq, sample)]
    drafts: list[Draft] = []
    if len(own) < len(seqs):
        rest = [0 if i in own else depth for i, depth in enumerate(depths)]
        drafts = grow_chains(
            seqs, rest, feed, sample=sample, confidence_threshold=confidence_threshold, budgets=budgets,
            feed_last=feed_last,
        )  # fmt: skip
    if own:
        assert run is not None
        draws = [_draw(seqs[i], sample, depths[i]) for i in own]
        least = [(ends[i].token, ends[i].path) for i in own] if asked else None
        found = run(own, [depths[i] for i in own], draws, least)
        check_finite(seqs, own, [nan if -1 in path else 0.0 for path in found.tokens])
        if found.surenesses is not None:
            made = [
                _cut(seqs[i].pending, path, law, sure, ends[i])
                for i, path, law, sure in zip(own, found.tokens, found.laws, found.surenesses, strict=True)
            ]
        else:
            made = [
                chain([seqs[i].pending, *path], law) for i, path, law in zip(own, found.tokens, found.laws, strict=True)
            ]
        if not drafts:
            return made
        for i, draft in zip(own, made, strict=True):
            drafts[i] = draft
    return drafts


def _cut(pending: int, path: list[int], law: Tensor | None, sure: list[float], end: Floor) -> Draft:
    """A native chain as far as its floor lets it: the token that falls below is the last."""
    count, survival = 0, 1.0
    for each in sure:
        count += 1
        survival *= each
        if each < end.token or survival < end.path:
            break
    q = law[:count] if law is not None else None
    return chain([pending, *path[:count]], q, confidence=torch.tensor([1.0, *sure[:count]]))


def _chooses_natively(seq: Sequence, sample: Sample) -> bool:
    if seq.request.params.edits_logits:
        return False
    return takes_argmax(seq, sample) or isinstance(seq.draft_coins(seq), KeyedDraftCoins)


def _draw(seq: Sequence, sample: Sample, depth: int) -> Draw | None:
    """How the next `depth` tokens are chosen; None: the best ones."""
    if takes_argmax(seq, sample):
        return None
    coins, params = seq.draft_coins(seq), seq.request.params
    assert isinstance(coins, KeyedDraftCoins)
    return Draw(keys=coins.chain_keys(depth), warp=warp_of(params))
