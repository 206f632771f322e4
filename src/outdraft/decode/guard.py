"""The guard around a target: decisions that rounding could change are made again with plain decoding's own numbers.

Where a target's rows depend on the pass they are in, a pass of many rows gives other last bits than passes of one row,
in its logits and in the keys and values that all later rows read. Greedy and coupled text is decided by the target
alone, so the guard can walk it before any rule does:

    pass       0 - a - b - c       a, b: the target's own tokens        sure (`sampling/doubt.py`): the row stands
    doubt              |           at a                                 from the first doubt on the path is replayed,
    replay             b' - c'                                          a row at a time, as far as the target follows it

A rule then reads the replayed rows and comes to the same path. So the text is plain decoding's if no difference of two
logits moves by more than the bound. Sequences under other rules are left alone: their distribution is promised, not
their text.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace

from torch import Tensor

from outdraft.core.draft import HostTree
from outdraft.core.packing import PackedDrafts
from outdraft.core.sequence import Sequence
from outdraft.core.target import ReplayingTarget, Target, TargetOutput
from outdraft.sampling.doubt import sure_decisions
from outdraft.sampling.warp import tree_paths, warp_nodes


class GuardedTarget:
    """A target whose greedy and coupled decisions are plain decoding's; for lossless rules.

    `bound`: how far a difference of two logits may move unnoticed.
    """

    def __init__(self, target: ReplayingTarget, bound: float) -> None:
        self.target = target
        self.bound = bound
        self.vocab_size, self.max_len = target.vocab_size, target.max_len

    def begin(self, seq: Sequence) -> int:
        return self.target.begin(seq)

    def forward(self, packed: PackedDrafts, taps: Seq[int] = ()) -> TargetOutput:
        """The target's pass, in whose logits all rows in doubt are replayed ones."""
        scored = self.target.forward(packed, taps)
        replayed = {i: count for i in scored.drifted if (count := self._settle(packed, i, scored.logits))}
        return replace(scored, drifted=frozenset(), replayed=replayed)

    def commit(self, seq: Sequence, keep: Seq[int]) -> None:
        self.target.commit(seq, keep)

    def end(self, seq: Sequence) -> None:
        self.target.end(seq)

    def _settle(self, packed: PackedDrafts, i: int, logits: Tensor) -> int:
        """Replay sequence i's rows from its first doubt on, in `logits` [M, V]; how many rows that took."""
        seq, tree = packed.seqs[i], packed.trees[i]
        if tree is None or not (seq.request.params.greedy or seq.coupled):
            return 0
        own, paths = logits[packed.node_slice(i)], tree_paths(tree)
        walked = _walk(seq, tree, own, [0])
        firsts = [nodes[0] for nodes in walked]
        sure = sure_decisions(seq, own[firsts], [paths[node] for node in firsts], self.bound)
        if all(sure):
            return 0
        count, ahead = 0, walked[sure.index(False) :]
        while ahead:
            again = self.target.replay(packed, i, ahead[0][0])
            count += again.num_rows
            own[ahead[0]] = again.logits.to(own.dtype)
            ahead = _walk(seq, tree, own, ahead[0])[1:]
        return count


def _walk(seq: Sequence, tree: HostTree, logits: Tensor, start: list[int]) -> list[list[int]]:
    """The nodes that the target's own tokens lead through, from `start` on, by its rows [N, V].

    The same text may be drafted twice, so each position of the path is a list of nodes.
    """
    distributions, coins = warp_nodes(seq, logits, tree_paths(tree)), seq.coins(seq)
    walked, same = [], start
    while same:
        walked.append(same)
        token = coins.draw(distributions[same[0]], tree.depths[same[0]])
        same = [child for node in same for child in tree.children[node] if tree.tokens[child] == token]
    return walked


def unguarded(target: Target) -> Target:
    """What stands behind the guard, if there is one."""
    return target.target if isinstance(target, GuardedTarget) else target
