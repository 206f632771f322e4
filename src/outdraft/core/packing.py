"""Many sequences' guesses laid end to end: the rows of one target pass.

    rows   [ c c c P d d | P d d d | c c c c ]     c certain (prompt), P pending, d draft node
    nodes  [       0 1 2   3 4 5 6           ]     the rows whose logits are wanted: the drafts, pending included

A prompt chunk is a chain of certain rows before the pending node, so that reading a prompt and verifying a guess are
one code path. A chunk that ends before the pending token has no nodes (`drafts[i] is None`).
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.draft import Draft, HostTree, host_tree
from outdraft.core.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedDrafts:
    """One pass: R rows over B sequences, of which M are draft nodes."""

    seqs: tuple[Sequence, ...]
    drafts: tuple[Draft | None, ...]
    trees: tuple[HostTree | None, ...]
    tokens: Tensor  # [R]
    positions: Tensor  # [R]
    nodes: Tensor  # [M] row of each draft node
    row_starts: tuple[int, ...]  # [B + 1]
    num_certain: tuple[int, ...]  # [B] rows before the pending one
    node_starts: tuple[int, ...]  # [B + 1]

    def node_slice(self, i: int) -> slice:
        """Where draft i's nodes stand among the M."""
        return slice(self.node_starts[i], self.node_starts[i + 1])


def pack(seqs: Seq[Sequence], drafts: Seq[Draft | None], *, max_chunk: int = 512) -> PackedDrafts:
    """Lay out one pass. A sequence whose prompt is not read yet contributes at most `max_chunk` certain rows.

    A draft's node 0 must be the sequence's pending token; a sequence that is not prefilled takes no draft but the
    pending token itself.
    """
    tokens: list[int] = []
    positions: list[int] = []
    nodes: list[int] = []
    row_starts, node_starts, num_certain = [0], [0], []
    packed_drafts: list[Draft | None] = []
    trees: list[HostTree | None] = []
    for seq, draft in zip(seqs, drafts, strict=True):
        pending_at = len(seq.tokens) - 1
        certain = min(pending_at - seq.num_cached, max_chunk)
        reaches = seq.num_cached + certain == pending_at
        draft = draft if reaches else None
        tree = host_tree(draft) if draft is not None else None
        tokens += seq.tokens[seq.num_cached : seq.num_cached + certain]
        positions += range(seq.num_cached, seq.num_cached + certain)
        if tree is not None:
            nodes += range(len(tokens), len(tokens) + len(tree.tokens))
            tokens += tree.tokens
            positions += [pending_at + depth for depth in tree.depths]
        row_starts.append(len(tokens))
        node_starts.append(len(nodes))
        num_certain.append(certain)
        packed_drafts.append(draft)
        trees.append(tree)
    return PackedDrafts(
        seqs=tuple(seqs),
        drafts=tuple(packed_drafts),
        trees=tuple(trees),
        tokens=torch.tensor(tokens, dtype=torch.long),
        positions=torch.tensor(positions, dtype=torch.long),
        nodes=torch.tensor(nodes, dtype=torch.long),
        row_starts=tuple(row_starts),
        num_certain=tuple(num_certain),
        node_starts=tuple(node_starts),
    )
