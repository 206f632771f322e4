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
    rows: list[Tensor] = []
    places: list[Tensor] = []
    nodes: list[Tensor] = []
    row_starts, node_starts, num_certain = [0], [0], []
    packed_drafts: list[Draft | None] = []
    trees: list[HostTree | None] = []
    for seq, draft in zip(seqs, drafts, strict=True):
        pending_at = len(seq.tokens) - 1
        certain = min(pending_at - seq.num_cached, max_chunk)
        reaches = seq.num_cached + certain == pending_at
        draft = draft if reaches else None
        tree = host_tree(draft) if draft is not None else None
        tokens = torch.tensor(seq.tokens[seq.num_cached : seq.num_cached + certain], dtype=torch.long)
        positions = torch.arange(seq.num_cached, seq.num_cached + certain)
        start = row_starts[-1] + certain
        if draft is not None and tree is not None:
            tokens = torch.cat([tokens.to(draft.tokens.device), draft.tokens]) if certain else draft.tokens
            positions = torch.cat([positions, pending_at + torch.tensor(tree.depths)])
            nodes.append(torch.arange(start, start + draft.num_nodes))
        rows.append(tokens)
        places.append(positions)
        row_starts.append(row_starts[-1] + tokens.shape[0])
        node_starts.append(node_starts[-1] + (draft.num_nodes if draft is not None else 0))
        num_certain.append(certain)
        packed_drafts.append(draft)
        trees.append(tree)
    return PackedDrafts(
        seqs=tuple(seqs),
        drafts=tuple(packed_drafts),
        trees=tuple(trees),
        tokens=_joined(rows),
        positions=torch.cat(places),
        nodes=torch.cat(nodes) if nodes else torch.zeros(0, dtype=torch.long),
        row_starts=tuple(row_starts),
        num_certain=tuple(num_certain),
        node_starts=tuple(node_starts),
    )


def _joined(rows: list[Tensor]) -> Tensor:
    """One after the other; on the device of those that were drafted there, if any."""
    device = next((row.device for row in rows if row.device.type != "cpu"), None)
    return torch.cat(rows if device is None else [row.to(device) for row in rows])
