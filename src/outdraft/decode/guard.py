"""The guard: decisions that a few last bits could turn are made again from plain decoding's own numbers.

Where a target's rows depend on the pass they are in, a pass of many rows gives other last bits than passes of one row,
in its logits and in the keys and values that all later rows read. A greedy or coupled decision that is sure under such
a change (`sampling/doubt.py`) stands. At the first one that is not, the target replays the text in passes of one row,
and the round ends there. So the text is plain decoding's if no difference of two logits moves by more than the bound.

Sequences under other rules are left alone: their law is promised, not their text.
"""

from collections.abc import Sequence as Seq

from torch import Tensor

from outdraft.core.packing import PackedDrafts
from outdraft.core.target import Target, TargetOutput
from outdraft.core.verdict import Verdict
from outdraft.sampling.doubt import sure_decisions
from outdraft.sampling.warp import tree_paths, warp_nodes


def settle(
    packed: PackedDrafts, scored: TargetOutput, p: Tensor, verdicts: Seq[Verdict], target: Target, bound: float
) -> tuple[list[Verdict], dict[int, int]]:
    """Verdicts without doubt, and the rows replayed for each sequence (by its index) that had any.

    What was computed again replaces its row in `scored.logits` and `p`, both [M, V].
    """
    judged = [i for i, draft in enumerate(packed.drafts) if draft is not None]
    settled, replayed = list(verdicts), {}
    for at, i in enumerate(judged):
        if i not in scored.drifted or not (packed.seqs[i].request.params.greedy or packed.seqs[i].coupled):
            continue
        node = _find_doubt(packed, i, scored.logits, verdicts[at], bound)
        if node is not None:
            settled[at], replayed[i] = _decide_again(packed, i, node, scored, p, target)
    return settled, replayed


def _find_doubt(packed: PackedDrafts, i: int, logits: Tensor, verdict: Verdict, bound: float) -> int | None:
    """The first node on the verdict's path whose decision is not sure."""
    tree = packed.trees[i]
    assert tree is not None
    nodes = [0, *verdict.path]
    paths = tree_paths(tree)
    rows = logits[[packed.node_starts[i] + node for node in nodes]]
    sure = sure_decisions(packed.seqs[i], rows, [paths[node] for node in nodes], bound)
    return next((node for node, fine in zip(nodes, sure, strict=True) if not fine), None)


def _decide_again(
    packed: PackedDrafts, i: int, node: int, scored: TargetOutput, p: Tensor, target: Target
) -> tuple[Verdict, int]:
    """The round ends at `node` with plain decoding's token. A child that guessed it was right, but its row is gone."""
    seq, tree, row = packed.seqs[i], packed.trees[i], packed.node_starts[i] + node
    assert tree is not None
    again = target.replay(packed, i, node)
    path = tree.path(node)
    scored.logits[row] = again.logits
    p[row] = warp_nodes(seq, again.logits[None], [[tree.tokens[v] for v in path]])[0]
    token = seq.coins(seq).draw(p[row], tree.depths[node])
    children = [tree.tokens[child] for child in tree.children[node]]
    return Verdict(tuple(path), token, bonus=not children or token in children), again.num_rows
