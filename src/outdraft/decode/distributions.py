"""The target's distribution at every node of a pass: logits [M, V] -> p [M, V], each sequence warped as its request
asks.

Where all requests are greedy and nothing edits their logits, one look at each row finds its best token, by the native
kernels if they run; else each sequence goes through `sampling.warp`.
"""

import torch
from torch import Tensor

from outdraft.core.packing import PackedDrafts
from outdraft.kernels.decoder.choice import best_distribution
from outdraft.sampling.warp import poisoned_one_hot, tree_paths, warp_nodes


def target_distributions(packed: PackedDrafts, logits: Tensor, *, soft: bool = False) -> Tensor:
    """The warped distribution at every node: [M, V] -> [M, V]. `soft`: at temperature 1 for greedy requests, not
    one-hot; a request that names a rule of its own is judged by that rule, which is not soft."""
    judged = [(i, seq, tree) for i, (seq, tree) in enumerate(zip(packed.seqs, packed.trees, strict=True)) if tree]
    if not soft and all(seq.request.params.greedy and not seq.edits_logits for _, seq, _ in judged):
        distribution = best_distribution(logits)
        if distribution is not None:
            return distribution
        if judged and logits.device.type != "cpu":
            return poisoned_one_hot(logits, logits.amax(-1))
    distributions = []
    for i, seq, tree in judged:
        paths = tree_paths(tree) if seq.depends_on_history else None
        distributions.append(
            warp_nodes(seq, logits[packed.node_slice(i)], paths, soft=soft and seq.settled.rule is None)
        )
    if not distributions:  # prompt chunks alone: no row is judged, and there are no logits
        return logits
    return distributions[0] if len(distributions) == 1 else torch.cat(distributions)
