"""Leaves beside a chain: at every step the next best tokens become leaves, fewer where the first is sure.

    pending -+- t1 -+- t2 ---- t3        confidence of the best token   > .95: 3 tokens   > .8: 5   > .5: 8   else 10
             +- u1  +- u2                a drawn guess: half as many, without replacement, the first one goes on

Leaves are judged and never fed to the draft, so they cost no draft pass. Xia et al., "SWIFT", 2024,
https://arxiv.org/abs/2410.06916. Data in: a chain and the logits that it was chosen from; data out: a tree.
"""

import torch
from torch import Tensor

from outdraft.core.draft import Draft
from outdraft.core.sequence import Sequence
from outdraft.drafters.shared.choose import Sample, takes_argmax
from outdraft.sampling.warp import warp_nodes

_WIDTHS = ((0.95, 3), (0.8, 5), (0.5, 8), (0.0, 10))


def width_at(confidence: float, *, drawn: bool) -> int:
    """Children of a node whose best child is so probable."""
    width = next(width for cutoff, width in _WIDTHS if confidence > cutoff)
    return (width + 1) // 2 if drawn else width


def add_siblings(seq: Sequence, path: Draft, rows: list[Tensor], room: int, sample: Sample) -> Draft:
    """A tree of the chain `path` and leaves, at most `room` nodes below the root. rows: logits [V] of each step."""
    tokens: list[int] = path.tokens.tolist()
    parents = list(range(-1, len(tokens) - 1))
    drawn = not takes_argmax(seq, sample)
    distributions: dict[int, Tensor] = {}
    sure: list[float] = [] if path.confidence is None else path.confidence.tolist()
    for depth, logits in enumerate(rows):
        probabilities = torch.softmax(logits.float(), -1)
        more = min(width_at(float(probabilities.amax()), drawn=drawn) - 1, room - len(tokens) + 1)
        if drawn:
            distributions[depth] = warp_nodes(seq, logits[None], [tokens[1 : depth + 1]], guesses=True)[0]
        if more < 1:
            continue
        if drawn:
            found = seq.draft_coins(seq).draw(distributions[depth], depth, depth, 1 + more)
        else:
            found = logits.topk(min(1 + more, len(logits))).indices.tolist()
        others = [token for token in found if token != tokens[depth + 1]][:more]
        tokens += others
        parents += [depth] * len(others)
        sure += probabilities[others].tolist()
    q = None
    if drawn and distributions:
        q = distributions[0].new_zeros(len(tokens), distributions[0].shape[0])
        q[list(distributions)] = torch.stack(list(distributions.values()))
    confidence = torch.tensor(sure) if path.confidence is not None else None
    return Draft(tokens=torch.tensor(tokens), parents=torch.tensor(parents), q=q, confidence=confidence)
