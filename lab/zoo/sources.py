"""Documents from the recipe's sources, and which of them are held out.

A packed corpus is a gzip file of JSON lines with a `text` field; "stdlib" is the running Python's own library without
its tests and tables. A document is held out by the hash of its text alone, so the split does not depend on order,
on the other sources, or on a document appearing in two of them.
"""

import gzip
import hashlib
import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from lab.zoo.recipe import DataConfig, TextSource
from outdraft.options.errors import ConfigError

_SKIPPED = {"test", "tests", "idle_test", "site-packages", "encodings", "pydoc_data", "__pycache__"}


def read_documents(source: TextSource, data_dir: Path) -> Iterator[str]:
    """The texts of one source, in a fixed order, up to its `max_chars`."""
    taken = 0
    for text in _read_stdlib() if source.path == "stdlib" else _read_packed(source, data_dir):
        yield text
        taken += len(text)
        if source.max_chars and taken >= source.max_chars:
            return


def _read_packed(source: TextSource, data_dir: Path) -> Iterator[str]:
    path = data_dir / source.path
    if not path.exists():
        raise ConfigError(f"source {source.name!r}: no file {path}; see docs/zoo.md for how the corpora are packed")
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue  # two of 149 lines of our books-more are damaged; without them the rest is whole
            if not source.only or record.get(source.only):
                yield record["text"]


def is_held_out(text: str, data: DataConfig) -> bool:
    """Whether a document belongs to validation: decided by its first 2000 characters, so that editions agree."""
    digest = hashlib.sha256(f"{data.holdout_seed}:{text[:2000]}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < data.holdout_percent


def _read_stdlib() -> Iterator[str]:
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if _SKIPPED.isdisjoint(parts) and not parts[-1].startswith("_sysconfigdata"):
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # a few files declare another encoding
            if len(text) > 200:
                yield text
