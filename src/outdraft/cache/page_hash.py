"""The name of a published page for other machines: a hash of its tokens and of all tokens before it.

    root of a salt --> 16 tokens --> hash --> 16 tokens --> hash ...

Equal names mean equal beginnings of a text, on whatever machine. BLAKE2b of 8 bytes: over the page before (8 bytes,
least one first), then each token as 8 bytes, least one first. Without a salt the root is 0, else the hash of its UTF-8.
"""

from collections.abc import Sequence as Seq
from hashlib import blake2b
from struct import pack


def root_hash(salt: str | None) -> int:
    """What stands before the first page of a text."""
    return 0 if salt is None else _hash(salt.encode())


def page_hash(before: int, tokens: Seq[int]) -> int:
    """The name of the page that holds these tokens behind the page (or the root) `before`."""
    return _hash(pack(f"<Q{len(tokens)}Q", before, *(token & (1 << 64) - 1 for token in tokens)))


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "little")
