"""Make a datastore: documents to ids, ids to the file, then the order of their suffixes. All or nothing.

The file grows under a hidden name beside its place and takes its own name when it is whole; an error or Ctrl-C leaves
nothing behind. Memory: the file itself is mapped, which the system may page out; beside it a batch of texts, and while
suffixes are sorted at most 2.3 bytes a token.
"""

import os
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import BinaryIO, Protocol

from outdraft.core.errors import ConfigError
from outdraft.drafters.shared.datastore.documents import Document
from outdraft.drafters.shared.datastore.file import HEADER_BYTES, MAX_TOKENS, Header, map_corpus
from outdraft.kernels.suffix_array import sort_suffixes

_BATCH_CHARS = 1 << 22  # texts that are encoded together
Tell = Callable[[str, float], object]  # what is done now, and the share of it that is done (nan: not known)


class Encoder(Protocol):
    """What a datastore needs of a tokenizer: a `codecs.text.TextCodec` has it."""

    vocab_size: int

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the vocabulary."""
        ...

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids without special tokens."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IdsOnly:
    """An encoder for documents that are lists of ids already."""

    vocab_size: int
    fingerprint: str = ""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Raises `ConfigError` if there is text after all."""
        if texts:
            raise ConfigError("the documents hold text: name the model whose tokenizer is to read it")
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What came of it."""

    header: Header
    encode_seconds: float
    sort_seconds: float


def build_datastore(
    path: str | Path, documents: Iterable[Document], encoder: Encoder, tell: Tell = lambda what, share: None
) -> Built:
    """Write the datastore at `path`, which may exist: then it is replaced at the end.

    Raises `ConfigError` if there is nothing to write, for ids beyond the vocabulary, and beyond 2^31 tokens.
    """
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    part = Path(name)
    try:
        began = perf_counter()
        with os.fdopen(handle, "wb") as file:
            header = _write_tokens(file, documents, encoder, tell)
            file.truncate(header.num_bytes)
        encoded = perf_counter()
        corpus = map_corpus(part, header, mode="r+")
        alphabet = header.vocab_size + 1
        sort_suffixes(corpus.tokens, corpus.order, alphabet, lambda share: tell("sorting", share))
        del corpus
        with part.open("r+b") as file:
            file.write(header.pack())  # last: a file without it is no datastore
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o644)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return Built(header=header, encode_seconds=encoded - began, sort_seconds=perf_counter() - encoded)


def _write_tokens(file: BinaryIO, documents: Iterable[Document], encoder: Encoder, tell: Tell) -> Header:
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
    return Header(
        vocab_size=end, num_tokens=num_tokens, num_documents=num_documents, fingerprint=encoder.fingerprint
    )  # fmt: skip


def _batches(documents: Iterable[Document]) -> Iterator[list[Document]]:
    batch: list[Document] = []
    size = 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= _BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
