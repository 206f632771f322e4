"""The head of a GGUF file: keys and values, and where each tensor lies (github.com/ggml-org/ggml, docs/gguf.md).

    "GGUF", version, counts | key, type, value ... | tensor: name, sizes, type, place ... | fill | data

The `gguf` package reads every string of a vocabulary as arrays of its own, which takes eight seconds for 128,000 tokens
and their merges. Here strings are only stepped over, and made when a caller asks.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import open_file

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_VERSIONS = (2, 3)
_MOST_DIMS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlace:
    """A tensor. `sizes`: slowest first. `type`: the number for how it is stored. `start`: after `data_start`."""

    sizes: tuple[int, ...]
    type: int
    start: int


class GgufHeader:
    """Raises `ValueError` or `struct.error` for what is no GGUF file or cut short, `ModelLoadError` if big-endian."""

    def __init__(self, path: Path) -> None:
        with open_file(path) as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._at = 0
        if self._bytes(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        version = self._next("I")
        if version not in _VERSIONS:
            if version & 0xFFFF == 0:
                raise ModelLoadError(
                    f"{path} is a big-endian GGUF file (its version reads as {version}), and only little-endian ones "
                    f"are read: convert it (`gguf-convert-endian {path.name} little`), or download the other file"
                )
            raise ValueError(f"version {version} is not read, {' and '.join(map(str, _VERSIONS))} are")
        num_tensors, num_keys = self._next("Q"), self._next("Q")
        self._values: dict[str, tuple[int, int]] = {}  # key -> type, where the value begins
        for _ in range(num_keys):
            key, kind = self._text(), self._next("I")
            if key in self._values:
                raise ValueError(f"the key {key!r} stands there twice")
            self._values[key] = kind, self._at
            self._skip(kind)
        self.tensors: dict[str, TensorPlace] = {}
        for _ in range(num_tensors):
            name, place = self._text(), self._place()
            if name in self.tensors:
                raise ValueError(f"the tensor {name!r} stands there twice")
            self.tensors[name] = place
        end, align = self._at, self.get("general.alignment", 32)
        if not isinstance(align, int) or align <= 0 or align & (align - 1):
            raise ValueError(f"general.alignment={align} is no power of two")
        self.data_start = -(-end // align) * align

    def get(self, key: str, default: Any = None) -> Any:
        """The value of this key: a number, a string, or a list of them."""
        if key not in self._values:
            return default
        kind, self._at = self._values[key]
        return self._value(kind)

    def types(self, key: str) -> tuple[int, int | None]:
        """The format's numbers for the type of a key's value, and of the elements if that is a list."""
        kind, self._at = self._values[key]
        return kind, self._next("I") if kind == _LIST else None

    def names(self) -> Iterator[str]:
        return iter(self._values)

    def _place(self) -> TensorPlace:
        dims = self._next("I")
        if not 0 < dims <= _MOST_DIMS:
            raise ValueError(f"a tensor has {dims} dimensions, 1 to {_MOST_DIMS} are possible")
        sizes = tuple(self._next("Q") for _ in range(dims))
        return TensorPlace(sizes=sizes[::-1], type=self._next("I"), start=self._next("Q"))

    def _next(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self.data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _bytes(self, count: int) -> bytes:
        found = self.data[self._at : self._at + count]
        if len(found) < count:
            raise ValueError(f"{count} bytes are announced, and {len(found)} are there")
        self._at += count
        return found

    def _text(self) -> str:
        return self._bytes(self._next("Q")).decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind != _LIST:
            return self._next(self._code(kind))
        inner, count = self._next("I"), self._next("Q")
        if inner == _TEXT:
            return self._texts(count)
        if inner == _LIST:
            return [self._value(inner) for _ in range(count)]
        code = self._code(inner)
        return list(struct.unpack(f"<{count}{code}", self._bytes(count * struct.calcsize("<" + code))))

    def _texts(self, count: int) -> list[str]:
        begin = at = self._at
        self._skip_texts(count)
        data, length, found = self.data[begin : self._at], struct.Struct("<Q").unpack_from, []
        while at < self._at:
            end = at + 8 + length(data, at - begin)[0]
            found.append(str(data[at + 8 - begin : end - begin], "utf-8"))
            at = end
        return found

    def _skip(self, kind: int) -> None:
        """Go on behind a value without making it."""
        if kind == _TEXT:
            self._step(self._next("Q"))
        elif kind != _LIST:
            self._step(struct.calcsize("<" + self._code(kind)))
        else:
            inner, count = self._next("I"), self._next("Q")
            if inner == _TEXT:
                self._skip_texts(count)
            elif inner == _LIST:
                for _ in range(count):
                    self._skip(inner)
            else:
                self._step(count * struct.calcsize("<" + self._code(inner)))

    def _skip_texts(self, count: int) -> None:
        at, data, length = self._at, self.data, struct.Struct("<Q").unpack_from
        for _ in range(count):
            at += 8 + length(data, at)[0]
        self._at = at
        self._step(0)

    def _step(self, count: int) -> None:
        self._at += count
        if self._at > len(self.data):
            raise ValueError(f"a value ends behind the file's {len(self.data)} bytes")

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise ValueError(f"values of type {kind} are not known")
        return _SCALARS[kind]
