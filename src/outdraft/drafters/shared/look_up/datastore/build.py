"""Make a datastore: documents to ids, ids to the file, then the order of their suffixes. All or nothing.

The file grows beside its place and takes its own name when it is whole; an error or Ctrl-C leaves
nothing behind. Memory: the file itself is mapped, which the system may page out; beside it a batch of texts, and while
suffixes are sorted at most 2.3 bytes a token.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path
from time import perf_counter
from typing import Any, BinaryIO

from outdraft.codecs.text import TextCodec
from outdraft.drafters.shared.look_up.datastore.documents import Document
from outdraft.drafters.shared.look_up.datastore.file import HEADER_BYTES, MAX_TOKENS, Header, map_corpus
from outdraft.kernels.text_index.suffix_array import sort_suffixes
from outdraft.options.checked import check_fields
from outdraft.options.errors import ConfigError
from outdraft.options.new_file import new_file
from outdraft.options.paths import user_path
from outdraft.options.ranges import LARGEST, check_range
from outdraft.options.shown import shown
from outdraft.options.types import plain

_PIECE = 1 << 20  # bytes that are written at once
_BATCH_CHARS = 1 << 22  # texts that are encoded together
Tell = Callable[[str, float], object]  # what is done now, and the share of it that is done (nan: not known)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsOnly:
    """An encoder for documents that are lists of ids already."""

    vocab_size: int
    fingerprint: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        check_range(self, "vocab_size", least=1, most=LARGEST - 1)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Raises `ConfigError` if there is text after all."""
        if texts:
            raise ConfigError("the documents hold text: name the model whose tokenizer is to read it")
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a build made: counts, bytes and seconds."""

    header: Header
    encode_seconds: float
    sort_seconds: float


def build_datastore(
    path: str | Path, documents: Iterable[Document], encoder: TextCodec | IdsOnly, tell: Tell = lambda what, share: None
) -> Built:
    """Write the datastore at `path`, which may exist: then it is replaced at the end.

    Raises `ConfigError` if there is nothing to write, for ids beyond the vocabulary, and beyond 2^31 tokens.
    """
    with new_file(user_path(path)) as part:
        began = perf_counter()
        with part.open("wb") as file:
            header = _write_tokens(file, documents, encoder, tell)
            _take_room(file, header.num_bytes)
        encoded = perf_counter()
        corpus = map_corpus(part, header, mode="r+")
        alphabet = header.vocab_size + 1
        sort_suffixes(corpus.tokens, corpus.order, alphabet, lambda share: tell("sorting", share))
        del corpus
        with part.open("r+b") as file:
            file.write(header.pack())  # last: a file without it is no datastore
            file.flush()
            os.fsync(file.fileno())
    return Built(header=header, encode_seconds=encoded - began, sort_seconds=perf_counter() - encoded)


def _take_room(file: BinaryIO, num_bytes: int) -> None:
    """Have the whole file on the disk: in a sparse one a write to mapped memory kills the process when it is full."""
    file.flush()
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, num_bytes)
        return
    left = num_bytes - file.tell()
    while left > 0:
        left -= file.write(bytes(min(left, _PIECE)))


def _write_tokens(file: BinaryIO, documents: Iterable[Document], encoder: TextCodec | IdsOnly, tell: Tell) -> Header:
    end, num_tokens, num_documents = encoder.vocab_size, 0, 0
    file.write(bytes(HEADER_BYTES))
    for batch in _batches(documents):
        texts = iter(encoder.encode_batch([document for document in batch if isinstance(document, str)]))
        for document in batch:
            ids = next(texts) if isinstance(document, str) else document
            if ids and not 0 <= min(ids) <= max(ids) < end:
                raise ConfigError(f"document {num_documents + 1} has ids outside of 0..{end - 1}: wrong tokenizer?")
            file.write(array("i", [*ids, end]).tobytes())
            num_tokens += len(ids) + 1
            num_documents += 1
        if num_tokens > MAX_TOKENS:
            raise ConfigError(f"more than {MAX_TOKENS} tokens: build several datastores")
        tell(f"{num_tokens:,} tokens", float("nan"))
    if num_tokens == num_documents:
        raise ConfigError("the documents hold no token: name files that hold text")
    return Header(vocab_size=end, num_tokens=num_tokens, num_documents=num_documents, fingerprint=encoder.fingerprint)


def _whole_numbers(document: Any, number: int) -> list[int]:
    try:
        return list(map(index, document))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"document {number} is {shown(document)}: it must be a text or a list of ids") from error


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    if isinstance(documents, str | bytes | Mapping) or not isinstance(documents, Iterable):
        raise ConfigError(f"documents={shown(documents)}: it must be a list of texts, or of lists of ids")
    for number, document in enumerate(map(plain, documents), 1):
        if not isinstance(document, str | list | tuple):
            raise ConfigError(f"document {number} is {shown(document)}: it must be a text or a list of ids")
        batch.append(document if isinstance(document, str) else _whole_numbers(document, number))
        size += len(document)
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
