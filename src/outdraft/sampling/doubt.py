"""Which decisions would survive a small change of the logits: the guard's arithmetic (`decode/guard.py`).

A decision is the best token (greedy) or the winner of the keyed race (coupled) over one row of logits. It is sure if it
stays the same however the row changes, as long as the difference of any two of its logits moves by at most `bound`:

    the winner leads every token that min-p, top-k, top-p and typical_p could let in by more than that, and
    they let the winner in whatever happens

Guidance, penalties and temperature stretch a change of the logits; the bound is stretched with them.
"""

from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from outdraft.core.sequence import Sequence
from outdraft.options.params import SamplingParams
from outdraft.sampling.coins import target_key
from outdraft.sampling.guidance import stretch
from outdraft.sampling.noise import uniforms
from outdraft.sampling.typical import typical_kept
from outdraft.sampling.warp import adjust


def sure_decisions(seq: Sequence, logits: Tensor, paths: Seq[list[int]], bound: float) -> list[bool]:
    """For rows `logits` [n, V], the raw ones: whether the token after `seq.tokens` and `paths[i]` is beyond doubt."""
    params = seq.request.params
    factor = params.repetition_penalty
    bound *= max(factor, 1 / factor) * stretch(params.guidance_scale)
    scores = adjust(seq, logits.double(), paths)  # [n, V]
    if params.greedy:
        best = scores.topk(min(2, scores.shape[-1]), -1).values
        lead = best[:, 0] - best[:, -1]
        return [scores.shape[-1] == 1 or gap > bound for gap in lead.tolist()]
    keys = [target_key(seq.seed, len(seq.tokens) + len(path)) for path in paths]
    rows = zip(scores / params.temperature, keys, strict=True)
    return [_sure_race(row, key, params, bound / params.temperature) for row, key in rows]


def _sure_race(scores: Tensor, key: int, params: SamplingParams, bound: float) -> bool:
    """One row [V] of scores (logs of the distribution, up to a constant)."""
    sure, possible = _kept(scores, params, bound)
    times = torch.log(uniforms(key, scores.shape[0], scores.device)).neg_().log_() - scores  # logs; the first wins
    first = times.masked_fill(~possible, torch.inf).topk(min(2, scores.shape[0]), largest=False)
    winner = int(first.indices[0])
    lead = float(first.values[-1] - first.values[0]) if scores.shape[0] > 1 else torch.inf
    return bool(sure[winner]) and lead > bound


def _kept(scores: Tensor, params: SamplingParams, bound: float) -> tuple[Tensor, Tensor]:
    """[V] bool twice: which tokens the truncations keep whatever happens, and which they may keep."""
    size = scores.shape[0]
    sure, possible = torch.ones(2, size, dtype=torch.bool, device=scores.device)
    if params.min_p:
        edge = scores.max() + torch.log(torch.tensor(params.min_p, dtype=scores.dtype))
        sure, possible = scores >= edge + bound, scores >= edge - bound
    if params.top_k and params.top_k < size:
        best = scores.topk(params.top_k + 1).values
        sure = sure & (scores > best[-1] + bound)
        possible = possible & (scores >= best[-2] - bound)
    if params.top_p < 1:
        ordered = scores.sort(descending=True).values
        masses = (ordered - ordered[0]).exp()
        before = torch.cat((masses.new_zeros(1), masses.cumsum(0)))  # [V + 1] mass of the first i
        own = (scores - ordered[0]).exp()
        least = before[torch.searchsorted(-ordered, -(scores + bound))] / own[possible].sum()
        most = (before[torch.searchsorted(-ordered, -(scores - bound), right=True)] - own) / own[sure].sum()
        possible = possible & (_shift_odds(least, -bound) < params.top_p)
        sure = sure & (_shift_odds(most, bound) < params.top_p)
    if params.typical_p < 1:
        sure, possible = typical_kept(scores, sure, possible, params.typical_p, bound)
    return sure, possible


def _shift_odds(mass: Tensor, by: float) -> Tensor:
    """What a share of the mass can become when logits move against each other by `by`."""
    mass = mass.clamp(0, 1)
    weight = torch.exp(torch.tensor(by, dtype=mass.dtype))
    return mass * weight / (mass * weight + 1 - mass)
