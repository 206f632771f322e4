"""Chains in one native call, for the sequences whose tokens the kernels can choose.

The kernels know the best token, and draws from a distribution warped by temperature, min-p, top-k and top-p with the
keyed noise of production. Whatever edits logits (penalties, biases, masks), truncates by typical_p or asks other coins
is stepped. A chain that falls below its cutoff is cut there afterwards, and the call ends where all have fallen. Data
in: sequences, depths and the call; data out: one chain for each of them.
"""

from collections.abc import Sequence as Seq
from math import nan

import torch
from torch import Tensor

from outdraft.core.draft import Draft, chain
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.chains.network import RunChains
from outdraft.drafters.shared.choose import Sample, check_finite, takes_argmax
from outdraft.drafters.shared.limits import Cutoff
from outdraft.kernels.decoder.guesser import Draw
from outdraft.sampling.coins import KeyedDraftCoins
from outdraft.sampling.warp import warp_of


def chooses_natively(seq: Sequence, sample: Sample) -> bool:
    """Whether the kernels can choose this sequence's tokens."""
    if seq.edits_logits:
        return False
    if takes_argmax(seq, sample):
        return True
    return seq.request.params.typical_p == 1 and isinstance(seq.draft_coins(seq), KeyedDraftCoins)


def native_chains(
    seqs: Seq[Sequence], rows: list[int], depths: Seq[int], run: RunChains, cutoffs: Seq[Cutoff] | None, *,
    sample: Sample,
) -> list[Draft]:  # fmt: skip
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
