"""The target's law at every node of a pass: logits [M, V] -> p [M, V], each sequence warped as its request asks.

Where all requests are greedy and nothing edits their logits, one look at each row finds its best token, by the native
kernels if they run; else each sequence goes through `sampling.warp`.
"""

import torch
from torch import Tensor

from outdraft.core.packing import PackedDrafts
from outdraft.kernels.choice import best_law
from outdraft.sampling.warp import poisoned_one_hot, tree_paths, warp_nodes


def target_laws(packed: PackedDrafts, logits: Tensor, *, soft: bool = False) -> Tensor:
    """The warped law at every node: [M, V] -> [M, V]. `soft`: at temperature 1 for greedy requests, not one-hot."""
    judged = [(i, seq, tree) for i, (seq, tree) in enumerate(zip(packed.seqs, packed.trees, strict=True)) if tree]
    asked = [seq.request.params for _, seq, _ in judged]
    if not soft and all(params.greedy and not params.edits_logits for params in asked):
        law = best_law(logits)
        if law is not None:
            return law
        if judged and logits.device.type != "cpu":
            return poisoned_one_hot(logits, logits.amax(-1))
    laws = []
    for i, seq, tree in judged:
        paths = tree_paths(tree) if seq.request.params.depends_on_history else None
        laws.append(warp_nodes(seq, logits[packed.node_slice(i)], paths, soft=soft))
    return laws[0] if len(laws) == 1 else torch.cat(laws) if laws else logits
