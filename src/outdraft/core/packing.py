"""Packing: the guesses of many sequences, laid end to end as the rows of one target pass.

    rows   [ c c c P d d | P d d d | c c c c ]     c certain (prompt), P pending, d draft node
    nodes  [       0 1 2   3 4 5 6           ]     the rows whose logits are wanted: the drafts, pending included

A prompt chunk is a chain of certain rows before the pending node, so that reading a prompt and verifying a guess are
one code path. A chunk that ends before the pending token has no nodes (`drafts[i] is None`). A sequence that waits for
what is read beside it may have no row at all.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.draft import Draft, HostTree, host_tree
from outdraft.core.sequence import Sequence
from outdraft.core.special_rows import embeds_of, prompt_rows_of, with_unread
from outdraft.options.errors import CapabilityError


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
    embeds: tuple[Tensor | None, ...]  # [B] of each sequence's rows [r, D]: vectors; NaN rows: use the token
    num_beside: tuple[int, ...] = ()  # [B] tokens that are to be read of what stands beside each (`Sequence.beside`)
    prompt_rows: tuple[range, ...] = ()  # [B] rows that predict prompt tokens whose log probabilities are asked for
    starts_from_ids: bool = True  # token ids say it all: no request brings embeddings, no draft resumes at a layer

    def node_slice(self, i: int) -> slice:
        """Where draft i's nodes stand among the M."""
        return slice(self.node_starts[i], self.node_starts[i + 1])


def pack(seqs: Seq[Sequence], drafts: Seq[Draft | None], *, max_chunk: int | None = None) -> PackedDrafts:
    """Lay out one pass. A sequence whose prompt is not read yet contributes at most `max_chunk` certain rows.

    None: as many as the sequence was given for this pass (`Turn.max_chunk`).

    A draft's node 0 must be the sequence's pending token; a sequence that is not prefilled takes no draft but the
    pending token itself.
    """
    tokens: list[int] = []
    positions: list[int] = []
    nodes: list[int] = []
    row_starts, node_starts, num_certain, num_beside = [0], [0], list[int](), list[int]()
    embeds: list[Tensor | None] = []
    prompt_rows: list[range] = []
    packed_drafts: list[Draft | None] = []
    trees: list[HostTree | None] = []
    starts_from_ids, unread = True, list[int]()
    for i, (seq, draft) in enumerate(zip(seqs, drafts, strict=True)):
        pending_at = len(seq.tokens) - 1
        chunk = seq.turn.max_chunk if max_chunk is None else max_chunk
        certain = min(pending_at - seq.num_cached, chunk)
        reaches = seq.num_cached + certain == pending_at and (seq.beside is None or seq.beside.num_unread <= chunk)
        draft = draft if reaches else None
        tree = host_tree(draft) if draft is not None else None
        if certain:
            tokens += seq.tokens[seq.num_cached : seq.num_cached + certain]
            positions += map(seq.position, range(seq.num_cached, seq.num_cached + certain))
        if tree is not None and draft is not None:
            starts_from_ids = starts_from_ids and draft.resume is None
            if not tree.is_read:
                unread.append(i)
            elif tree.tokens[:1] != seq.tokens[-1:]:
                raise CapabilityError(
                    f"the draft of sequence {seq.id} begins with {tree.tokens[:1]}: node 0 must be the pending token "
                    f"{seq.pending}"
                )
            nodes += range(len(tokens), len(tokens) + len(tree.parents))
            tokens += tree.tokens if tree.is_read else [0] * len(tree.parents)
            position = seq.position(pending_at)  # from there on they follow one another, whatever the prompt's are
            positions += [position + depth for depth in tree.depths]
        start = row_starts[-1]
        scores = seq.request.params.prompt_logprobs is not None
        prompt_rows.append(prompt_rows_of(seq, certain, start) if scores else range(start, start))
        row_starts.append(len(tokens))
        node_starts.append(len(nodes))
        num_certain.append(certain)
        num_beside.append(0 if seq.beside is None else min(seq.beside.num_unread, chunk))
        has_vectors = seq.request.prompt_embeds is not None or (draft is not None and draft.embeds is not None)
        embeds.append(embeds_of(seq, certain, draft) if has_vectors else None)
        starts_from_ids = starts_from_ids and embeds[-1] is None
        packed_drafts.append(draft)
        trees.append(tree)
    ids = torch.tensor(tokens, dtype=torch.long)
    return PackedDrafts(
        seqs=tuple(seqs),
        drafts=tuple(packed_drafts),
        trees=tuple(trees),
        tokens=with_unread(ids, packed_drafts, unread, row_starts) if unread else ids,
        positions=torch.tensor(positions, dtype=torch.long),
        nodes=torch.tensor(nodes, dtype=torch.long),
        row_starts=tuple(row_starts),
        num_certain=tuple(num_certain),
        num_beside=tuple(num_beside),
        node_starts=tuple(node_starts),
        embeds=tuple(embeds),
        prompt_rows=tuple(prompt_rows),
        starts_from_ids=starts_from_ids,
    )
