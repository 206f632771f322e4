"""Open a file that others may have written: a regular one, and within a limit where it is read whole.

A pipe would be waited for, and a device may have no end. Both, a socket, a directory and a file beyond the limit are an
`OSError` at once, as a file that is not there is; each reader makes its own error of it. Every open of a model's files,
of heads, stores and options goes through here, or through `require_file` where a library opens it itself.
"""

import errno
import io
import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any, BinaryIO

LARGEST = 64 << 20  # bytes of a document; vocabularies may be larger
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def require_file(path: Path) -> Path:
    """The path, if a regular file stands there. Raises `OSError` otherwise."""
    _check(path, path.stat().st_mode)
    return path


def open_file(path: Path) -> BinaryIO:
    """Open it for reading bytes. Raises `OSError` for what is no regular file, without waiting for a writer."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check(path, os.fstat(descriptor).st_mode)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def load_text(path: Path, *, most: int = LARGEST) -> str:
    """A UTF-8 text of at most `most` bytes. Raises `OSError` for a longer one and for what is no regular file,
    `UnicodeDecodeError` for other bytes.
    """
    with open_file(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()


def load_json(path: Path, *, most: int = LARGEST) -> Any:
    """What a JSON file holds. Raises `OSError` as `load_text` does, `ValueError` for what is no JSON."""
    try:
        return json.loads(load_text(path, most=most))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def load_toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds. Raises `OSError` as `load_text` does, `ValueError` for what is no TOML."""
    try:
        return tomllib.loads(load_text(path))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _check(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "no regular file")
        raise OSError(errno.EINVAL, f"it is {kind}, and no regular file", str(path))
