"""The static shape of a pass: the next larger one of a few sizes, so that few recorded graphs serve all passes.

rows    1 2 4 8 16 32 64 ...           new rows of all sequences
seqs    1 2 4 8 16 32 64 ...           sequences
pages   16 64 256 1024 ...             width of the page table: 256, 1k, 4k, 16k positions, ...
"""

from dataclasses import dataclass

_PAGES_AT_LEAST = 16
_TILE = 64  # query rows times heads that share keys, in one block


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
        rows=power_of_two(rows), seqs=power_of_two(seqs), pages=min(width, max_pages),
        block=block_rows(groups),
    )  # fmt: skip


def block_rows(groups: int) -> int:
    """Rows of a block: the same in every bucket, so that a row's sums run in one order in all of them."""
    return max(1, _TILE // power_of_two(groups))


def power_of_two(count: int) -> int:
    """The next one, at least 1."""
    return 1 << max(0, count - 1).bit_length()
