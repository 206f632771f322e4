"""The datastore's file format, version 1. Little endian, memory-mapped, so that it may be larger than memory.

    0    8 bytes   b"ODSTORE" and a zero
    8    uint32    format version, 1
    12   uint32    V, size of the vocabulary; the id V stands after each document
    16   uint64    N, tokens in all, V's included
    24   uint64    documents
    32   32 bytes  SHA-256 of the vocabulary (`TextCodec.fingerprint`), or zeros: not known
    64   int32[N]  tokens
    ..   int32[N]  starts of all suffixes, in order

Data in: a path; data out: a `Datastore`, or an error that says what is wrong with the file.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from outdraft.codecs.text import TextCodec
from outdraft.drafters.shared.look_up.span_index import Sequel, paths
from outdraft.kernels.text_index.suffix_array import CorpusAnswer, CorpusQuery, SortedText, look_up
from outdraft.models.networks.port import TargetPort
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.options.read_file import open_file

MAGIC, VERSION = b"ODSTORE\0", 1
_LAYOUT = struct.Struct("<8sIIQQ32s")
HEADER_BYTES = _LAYOUT.size
MAX_TOKENS = 2**31 - 2  # positions are int32
_PIECE = 1 << 22  # numbers that are checked at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the file says of itself."""

    vocab_size: int
    num_tokens: int
    num_documents: int
    fingerprint: str = ""  # hexadecimal; empty: made from ids, of an unnamed vocabulary

    def pack(self) -> bytes:
        """As it stands in the file."""
        numbers = (VERSION, self.vocab_size, self.num_tokens, self.num_documents)
        return _LAYOUT.pack(MAGIC, *numbers, bytes.fromhex(self.fingerprint))

    @property
    def num_bytes(self) -> int:
        return HEADER_BYTES + 8 * self.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Datastore:
    """An open datastore file, memory-mapped."""

    path: Path
    header: Header
    corpus: SortedText
    pages: mmap.mmap  # of the header: it gives the size of what is mapped, whatever stands at the path by now

    def look_up(self, tokens: Seq[int], query: CorpusQuery) -> CorpusAnswer:
        """What followed these tokens. Raises `ConfigError` if the file was changed while it was open.

        Its size is asked first: to read a mapped page that another program has cut away would end the process.
        """
        if self.pages.size() < self.header.num_bytes:
            raise ConfigError(f"datastore {self.path} was cut short while it was open: build it again")
        try:
            return look_up(self.corpus, tokens, query)
        except RuntimeError as error:
            raise ConfigError(
                f"datastore {self.path} was changed while it was open ({error}): build it again"
            ) from error

    def check_vocabulary(self, vocab_size: int, fingerprint: str) -> None:
        """Raises `ConfigError` unless its ids are this vocabulary's; an empty fingerprint is one not known."""
        own = self.header
        cure = "build it again with --model naming this target"
        if own.vocab_size > vocab_size:
            raise ConfigError(
                f"datastore {self.path.name} holds ids of a vocabulary of {own.vocab_size} tokens, the target has "
                f"{vocab_size}: {cure}"
            )
        if own.fingerprint and fingerprint and own.fingerprint != fingerprint:
            raise ConfigError(
                f"datastore {self.path.name} was built with another tokenizer ({own.fingerprint[:12]}) than the "
                f"target's ({fingerprint[:12]}): {cure}"
            )


def open_datastore(path: str | Path) -> Datastore:
    """Map the file. Raises `ConfigError` if it is missing, of another kind or version, cut short or damaged.

    It is read through once, so that a damaged one is refused now, and not by a look-up in the middle of a request.
    """
    path = user_path(path)
    try:
        with open_file(path) as file:
            head, size = file.read(HEADER_BYTES), os.fstat(file.fileno()).st_size
            if len(head) < HEADER_BYTES or head[:8] != MAGIC:
                raise ConfigError(f"{path} is no datastore; `outdraft datastore build` makes one")
            pages = mmap.mmap(file.fileno(), HEADER_BYTES, access=mmap.ACCESS_READ)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"datastore {path}: {reason}; `outdraft datastore build` makes one") from error
    _, version, vocab_size, num_tokens, num_documents, digest = _LAYOUT.unpack(head)
    if version != VERSION:
        raise ConfigError(f"datastore {path} has format {version}, this outdraft reads {VERSION}: build it again")
    header = Header(
        vocab_size=vocab_size,
        num_tokens=num_tokens,
        num_documents=num_documents,
        fingerprint=digest.hex() if any(digest) else "",
    )
    if size != header.num_bytes:
        raise ConfigError(f"datastore {path} has {size} bytes, its header wants {header.num_bytes}: build it again")
    corpus = map_corpus(path, header, mode="r")
    for what, numbers, top in (("token", corpus.tokens, vocab_size), ("place", corpus.order, num_tokens - 1)):
        for start in range(0, num_tokens, _PIECE):
            piece = numbers[start : start + _PIECE]
            if piece.min() < 0 or piece.max() > top:
                raise ConfigError(f"datastore {path} is damaged: it holds a {what} outside of 0..{top}: build it again")
    return Datastore(path=path, header=header, corpus=corpus, pages=pages)


def open_for(path: str | Path, port: TargetPort) -> Datastore:
    """Map the file for this target. Raises `ConfigError` also if its ids are not the target's."""
    store = open_datastore(path)
    store.check_vocabulary(
        port.facts.vocab_size, port.origin.codec.fingerprint if isinstance(port.origin.codec, TextCodec) else ""
    )
    return store


def map_corpus(path: Path, header: Header, *, mode: str) -> SortedText:
    """Tokens and order of a file whose header is known."""
    n = header.num_tokens
    if n == 0:
        empty = np.zeros(0, np.int32)
        return SortedText(tokens=empty, order=empty, end=header.vocab_size)
    both = np.memmap(path, dtype="<i4", mode=mode, offset=HEADER_BYTES, shape=(2, n))  # type: ignore[call-overload]
    return SortedText(tokens=both[0], order=both[1], end=header.vocab_size)


class DatastoreIndex:
    """`query`: how to look; its depth is the caller's."""

    def __init__(self, store: Datastore, query: CorpusQuery) -> None:
        self._store, self._query = store, query

    def lookup(self, context: Seq[int], depth: int) -> Iterator[Sequel]:
        tail = list(context[-self._query.max_match :])
        strange = [i for i, token in enumerate(tail) if token >= self._store.corpus.end]  # ids that no document has
        tail = tail[strange[-1] + 1 :] if strange else tail
        found = self._store.look_up(tail, replace(self._query, depth=depth))
        return paths(found.tokens, found.parents, found.counts)
