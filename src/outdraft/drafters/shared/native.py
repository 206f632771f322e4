"""Chains in one native call, for the sequences whose tokens the kernels can choose; the others are stepped from Python.

The kernels know the best token, and draws from a law warped by temperature, min-p, top-k and top-p with the keyed noise
of production. Whatever depends on the text (penalties, biases), asks other coins or looks at confidences is stepped.
That is decided for each sequence by itself: a guess does not depend on who else is in the batch. Data in: sequences,
depths, and both ways to run the network; data out: one chain for each sequence.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from math import nan

from outdraft.core.draft import Draft, chain
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chain import Feed, grow_chains
from outdraft.drafters.shared.choose import Sample, check_finite, takes_argmax
from outdraft.kernels.guesser import Chains, Draw
from outdraft.sampling.coins import KeyedDraftCoins

RunChains = Callable[[list[int], list[int], list[Draw | None]], Chains]  # which sequences, their depths, their draws


def grow_chains_natively(
    seqs: Seq[Sequence],
    depths: Seq[int],
    run: RunChains | None,
    feed: Feed,
    *,
    sample: Sample,
    confidence_threshold: float = 0.0,
    feed_last: bool = False,
) -> list[Draft]:
    """`grow_chains`, by `run` where it is there and the kernels can choose, else by `feed`."""
    own = [
        i
        for i, seq in enumerate(seqs)
        if depths[i] > 0 and run is not None and not confidence_threshold and _chooses_natively(seq, sample)
    ]
    drafts: list[Draft] = []
    if len(own) < len(seqs):
        rest = [0 if i in own else depth for i, depth in enumerate(depths)]
        drafts = grow_chains(
            seqs, rest, feed, sample=sample, confidence_threshold=confidence_threshold, feed_last=feed_last
        )
    if own:
        assert run is not None
        found = run(own, [depths[i] for i in own], [_draw(seqs[i], sample, depths[i]) for i in own])
        check_finite(seqs, own, [nan if -1 in path else 0.0 for path in found.tokens])
        made = [
            chain([seqs[i].pending, *path], law) for i, path, law in zip(own, found.tokens, found.laws, strict=True)
        ]
        if not drafts:
            return made
        for i, draft in zip(own, made, strict=True):
            drafts[i] = draft
    return drafts


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
    return Draw(
        keys=coins.chain_keys(depth), temperature=params.temperature, top_k=params.top_k, top_p=params.top_p,
        min_p=params.min_p,
    )  # fmt: skip
