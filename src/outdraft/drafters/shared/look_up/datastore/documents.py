"""Texts for a datastore, one document after the other.

    notes.txt, module.py, ...   one document a file; .gz is unpacked
    corpus.jsonl, corpus.jsonl.gz   one document a line: {"text": "..."}, or {"token_ids": [1, 2, 3]}, a model's own
                                    output; of a record with neither, all strings in it; .ndjson too
    a directory                 all files in it that have one of these names, in alphabetical order

Data in: paths; data out: strings, or lists of ids. Errors name file and line.
"""

import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path

Document = str | list[int]
TEXTS = (".txt", ".md", ".rst", ".html", ".py", ".c", ".h", ".cpp", ".rs", ".go", ".java", ".js", ".ts", ".sh", ".sql")
LINES = (".jsonl", ".ndjson")


def find_files(paths: Iterable[str | Path]) -> list[Path]:
    """The files that `paths` name. Raises `ConfigError` for one that is not there, and for a directory without any."""
    found: list[Path] = []
    for given in paths:
        path = user_path(given)
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and kind_of(file) in (*LINES, *TEXTS))
            if not inside:
                raise ConfigError(
                    f"{path} holds no text: files are known by their names, such as .txt, .md or .jsonl.gz"
                )
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise ConfigError(f"{path}: no such file or directory")
    return found


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """A UTF-8 file without its mark, if it has one, unpacked if it ends in .gz.

    Raises `ConfigError` for what cannot be read, also while it is read.
    """
    try:
        packed, encoding = path.suffix.lower() == ".gz", "utf-8-sig"
        with gzip.open(path, "rt", encoding=encoding) if packed else path.open(encoding=encoding) as file:
            yield file  # type: ignore[misc]
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise ConfigError(f"{path} is not a readable UTF-8 text: {error}") from error


def read_documents(path: Path, skip: Callable[[str], object] | None = None) -> Iterator[Document]:
    """The documents of one file, whatever its name. Raises `ConfigError` naming what is not readable.

    `skip` is called for each line that is not JSON, which is then left out; without it such a line is an error.
    """
    with open_text(path) as file:
        if kind_of(path) not in LINES:
            yield file.read()
            return
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield _document(json.loads(line))
                except (ValueError, RecursionError) as error:
                    damaged = f"{path}, line {number} is not JSON: {error}"
                    if skip is None:
                        raise ConfigError(damaged) from error
                    skip(damaged)


def kind_of(path: Path) -> str:
    """The end of its name, as .txt, whether or not it is packed."""
    name = Path(path.name.lower())
    return Path(name.stem).suffix if name.suffix == ".gz" else name.suffix


def _document(record: Any) -> Document:
    if isinstance(record, dict):
        ids = record.get("token_ids")
        if isinstance(ids, list) and all(isinstance(one, int) for one in ids):
            return ids
        if isinstance(record.get("text"), str):
            return str(record["text"])
    return "\n".join(_strings(record))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)
