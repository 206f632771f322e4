"""The rows of a pass as tensors of fixed shape in fixed memory, so that a recorded graph reads new rows at the same
addresses.

    real rows and sequences first, then padding    rows     [ A A A | B B | - - - ]        5 rows in a bucket of 8
                                                   owners     0 0 0   1 1  -1 -1 -1

The shape is the next larger one of a few sizes, a `Bucket`, so that few recorded graphs serve all passes:

    rows    1 2 4 8 16 32 64 ...           new rows of all sequences
    seqs    1 2 4 8 16 32 64 ...           sequences
    pages   16 64 256 1024 ...             width of the page table: 256, 1k, 4k, 16k positions, ...

A row sees its sequence's first `base` slots, and of the sequence's own new rows those whose bits are set in `sees`.
Padding rows write to a page that no sequence has and see nothing. All fields are views of one block of 64-bit
integers, which the host fills and sends in one copy.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.core.cache import PAGE

_PAGES_AT_LEAST = 16
_TILE = 64  # query rows times heads that share keys, in one block
_WORD = 64
_PADDING = -1


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Bucket:
    """A static shape. `block`: rows of one sequence that one block of the attention kernel takes."""

    rows: int
    seqs: int
    pages: int
    block: int


def find_bucket(*, rows: int, seqs: int, pages: int, groups: int, max_pages: int) -> Bucket:
    """The smallest bucket that holds such a pass.

    groups: query heads that share a key head; max_pages: pages of the longest context.
    """
    width = _PAGES_AT_LEAST
    while width < pages:
        width *= 4
    return Bucket(
        rows=power_of_two(rows), seqs=power_of_two(seqs), pages=min(width, max_pages), block=block_rows(groups)
    )


def block_rows(groups: int) -> int:
    """Rows of a block: the same in every bucket, so that a row's sums run in one order in all of them."""
    return max(1, _TILE // power_of_two(groups))


def power_of_two(count: int) -> int:
    """The next one, at least 1."""
    return 1 << max(0, count - 1).bit_length()


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedRows:
    """What attention reads: R rows of S sequences, in at most NB blocks of `block` rows of one sequence."""

    slots: Tensor  # [R] where a row's key and value go: page * 16 + place
    positions: Tensor  # [R]
    owners: Tensor  # [R] which sequence; -1: padding
    sees: Tensor  # [R, W] bit j of word w: sees its sequence's new row 64 w + j
    bases: Tensor  # [S] slots that every row of the sequence sees
    starts: Tensor  # [S] first row
    counts: Tensor  # [S] rows
    tables: Tensor  # [S, P] pages
    block_seqs: Tensor  # [NB] which sequence; -1: an unused block
    block_rows: Tensor  # [NB] first row, counted from the sequence's own first
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRows:
    """One sequence's rows of a pass, on the host."""

    ids: Seq[int]  # [n]
    positions: Seq[int]  # [n]
    base: int
    sees: Seq[int]  # [n] bit j: sees new row j
    pages: Seq[int]  # at least those of the slots below base + n


class RowBuffers:
    """The static memory of one bucket: `ids` [R], `last` [S] (a sequence's last row), and the `PagedRows`."""

    def __init__(self, bucket: Bucket, dustbin: int, device: torch.device) -> None:
        self.bucket = bucket
        self._dustbin = dustbin
        rows, seqs, words = bucket.rows, bucket.seqs, -(-bucket.rows // _WORD)
        blocks = seqs + rows // bucket.block
        sizes = [rows, seqs, rows, rows, rows, rows * words, seqs, seqs, seqs, seqs * bucket.pages, blocks, blocks]
        self.memory = StaticInts(sum(sizes), device)
        ids, last, slots, positions, owners, sees, bases, starts, counts, tables, block_seqs, block_rows = torch.split(
            self.memory.tensor, sizes
        )
        self.ids, self.last = ids, last
        self.rows = PagedRows(
            slots=slots,
            positions=positions,
            owners=owners,
            sees=sees.view(rows, words),
            bases=bases,
            starts=starts,
            counts=counts,
            tables=tables.view(seqs, bucket.pages),
            block_seqs=block_seqs,
            block_rows=block_rows,
            block=bucket.block,
        )

    def fill(self, parts: Seq[NewRows], new_ids: Tensor | None = None) -> None:
        """Take these sequences' rows; the rest is padding. `new_ids` [rows]: tokens that are on the device already."""
        bucket, bin_slot = self.bucket, self._dustbin * PAGE
        words = -(-bucket.rows // _WORD)
        ids: list[int] = []
        slots: list[int] = []
        positions: list[int] = []
        owners: list[int] = []
        sees: list[int] = []
        starts: list[int] = []
        tables: list[int] = []
        block_seqs: list[int] = []
        block_rows: list[int] = []
        for owner, part in enumerate(parts):
            n = len(part.ids)
            starts.append(len(ids))
            ids += part.ids
            positions += part.positions
            owners += [owner] * n
            slots += [part.pages[slot // PAGE] * PAGE + slot % PAGE for slot in range(part.base, part.base + n)]
            for bits in part.sees:
                sees += [_signed(bits >> _WORD * word) for word in range(words)]
            tables += padded(part.pages, bucket.pages, self._dustbin)
            for first in range(0, n, bucket.block):
                block_seqs.append(owner)
                block_rows.append(first)
        counts = [len(part.ids) for part in parts]
        rows, seqs, blocks = bucket.rows, bucket.seqs, bucket.seqs + bucket.rows // bucket.block
        self.memory.send(
            [
                *padded(ids, rows, 0),
                *padded([start + count - 1 for start, count in zip(starts, counts, strict=True)], seqs, 0),
                *padded(slots, rows, bin_slot),
                *padded(positions, rows, 0),
                *padded(owners, rows, _PADDING),
                *padded(sees, rows * words, 0),
                *padded([part.base for part in parts], seqs, 0),
                *padded(starts, seqs, 0),
                *padded(counts, seqs, 0),
                *padded(tables, seqs * bucket.pages, self._dustbin),
                *padded(block_seqs, blocks, _PADDING),
                *padded(block_rows, blocks, 0),
            ]
        )
        if new_ids is not None:
            self.ids[: len(new_ids)] = new_ids


class StaticInts:
    """Integers at one place on the device, sent from one place on the host."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.tensor = torch.zeros(count, dtype=torch.int64, device=device)
        self._on_gpu = device.type == "cuda"
        self._host = torch.zeros(count, dtype=torch.int64, pin_memory=self._on_gpu)
        self._sent = torch.cuda.Event() if self._on_gpu else None  # type: ignore[no-untyped-call]

    def send(self, values: list[int]) -> None:
        """One copy, which the host does not wait for; only the one before it must have left."""
        if self._sent is not None:
            self._sent.synchronize()
        self._host.copy_(torch.tensor(values, dtype=torch.int64))
        self.tensor.copy_(self._host, non_blocking=True)
        if self._sent is not None:
            self._sent.record()


def padded(values: Seq[int], length: int, filler: int) -> list[int]:
    """`values` and as many fillers as are missing."""
    return [*values[:length], *[filler] * (length - len(values))]


def chain_bits(n: int) -> list[int]:
    """`sees` of a chain: each row itself and all before it."""
    return [(1 << i + 1) - 1 for i in range(n)]


def tree_bits(parents: Seq[int]) -> list[int]:
    """`sees` of a tree: each row itself and its ancestors; a parent of -1 is none."""
    bits: list[int] = []
    for i, parent in enumerate(parents):
        bits.append(1 << i | (bits[parent] if parent >= 0 else 0))
    return bits


def mask_bits(mask: Tensor) -> list[int]:
    """`sees` of a mask [n, n] bool on the host."""
    rows: list[list[int]] = mask.to(torch.uint8).tolist()
    return [sum(1 << j for j, seen in enumerate(row) if seen) for row in rows]


def _signed(word: int) -> int:
    word &= (1 << _WORD) - 1
    return word - (1 << _WORD) if word >> _WORD - 1 else word
