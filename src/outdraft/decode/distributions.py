"""The target's distribution at every node of a pass: logits [M, V] -> p [M, V], each sequence warped as its request
asks.

Where all requests are greedy and nothing edits their logits, one look at each row finds its best token, by the native
kernels if they run. Neighbours that are sampled alike are warped by one call. Else each sequence goes through
`sampling.warp`.
"""

from itertools import groupby

import torch
from torch import Tensor

from outdraft.core.draft import HostTree
from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.kernels.decoder.choice import best_distribution
from outdraft.kernels.decoder.distributions import Warp, warp_rows
from outdraft.sampling.warp import poisoned_one_hot, tree_paths, warp_nodes, warp_of


def target_distributions(packed: PackedDrafts, logits: Tensor, *, soft: bool = False) -> Tensor:
    """The warped distribution at every node: [M, V] -> [M, V]. `soft`: at temperature 1 for greedy requests, not
    one-hot; a request that names a rule of its own is judged by that rule, which is not soft."""
    judged, is_one_hot = list[tuple[int, Sequence, HostTree]](), not soft
    for i, (seq, tree) in enumerate(zip(packed.seqs, packed.trees, strict=True)):
        if tree is not None:
            judged.append((i, seq, tree))
            is_one_hot = is_one_hot and seq.is_greedy and not seq.edits_logits
    if is_one_hot:
        distribution = best_distribution(logits)
        if distribution is not None:
            return distribution
        if judged and logits.device.type != "cpu":
            return poisoned_one_hot(logits, logits.amax(-1))
    distributions = []
    for shared, run in groupby(judged, lambda one: _shared_warp(one[1], soft=soft)):
        alike = list(run)
        rows = logits[packed.node_starts[alike[0][0]] : packed.node_starts[alike[-1][0] + 1]]
        if shared is not None and len(alike) > 1 and (made := warp_rows(rows, shared)) is not None:
            distributions.append(made)
            continue
        for i, seq, tree in alike:
            paths = tree_paths(tree) if seq.depends_on_history else None
            distributions.append(warp_nodes(seq, logits[packed.node_slice(i)], paths, soft=_is_soft(seq, soft=soft)))
    if not distributions:  # prompt chunks alone: no row is judged, and there are no logits
        return logits
    return distributions[0] if len(distributions) == 1 else torch.cat(distributions)


def _is_soft(seq: Sequence, *, soft: bool) -> bool:
    return soft and seq.settled.rule is None


def _shared_warp(seq: Sequence, *, soft: bool) -> Warp | None:
    """What makes its distributions, if that is all that does, so that others' rows may go through the same call."""
    params = seq.request.params
    is_one_hot = params.greedy and not _is_soft(seq, soft=soft)
    return None if is_one_hot or seq.edits_logits or params.typical_p < 1 else warp_of(params)
