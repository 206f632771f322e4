"""GGUF files by name: the parts of a model that was split, and the files in a directory that are models.

    model-00001-of-00003.gguf    the metadata, and some tensors or none
    model-00002-of-00003.gguf    more tensors
    mmproj-model-f16.gguf        a projector, which makes rows of pictures: no model of text

Each part says which one it is, of how many, and how many tensors all have together (`split.*`).
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from outdraft.options.checked import check_value
from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import open_file
from outdraft.weights.gguf_header import GgufHeader

_PART = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf")
_CURE = "download all parts of one model into one directory"


def part_paths(path: Path) -> list[Path]:
    """Where all parts of a file stand, the first part first; the path alone where its name is no part's."""
    found = _PART.fullmatch(path.name)
    if found is None or not 1 <= int(found[2]) <= (count := int(found[3])):
        return [path]
    return [path.with_name(f"{found[1]}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]


def find_parts(path: Path) -> list[Path]:
    """`part_paths`. Raises `ModelLoadError` where some of several are absent."""
    paths = part_paths(path)
    absent = [one.name for one in paths if not os.path.isfile(one)] if len(paths) > 1 else []
    if absent:
        raise ModelLoadError(
            f"{path} is one of {len(paths)} parts, and {len(absent)} are not beside it ({listed(absent)}): {_CURE}"
        )
    return paths


def require_whole(paths: Sequence[Path], headers: Sequence[GgufHeader]) -> None:
    """Raise `ModelLoadError` where parts by name are other parts by their metadata, or of several models."""
    seen: dict[str, Path] = {}
    whole = _number(headers[0], "split.tensors.count", paths[0])
    for i, (path, header) in enumerate(zip(paths, headers, strict=True)):
        number, count, total = (_number(header, f"split.{key}", path) for key in ("no", "count", "tensors.count"))
        if max(count, len(paths)) > 1 and (number, count, total) != (i, len(paths), whole):
            raise ModelLoadError(
                f"{path} is part {number + 1} of {count} parts with {total} tensors together (split.no, split.count, "
                f"split.tensors.count), and by its name and the first part it is part {i + 1} of {len(paths)} with "
                f"{whole}: give all parts of one model the names that they had (MODEL-00001-of-{count:05}.gguf), or "
                "merge them (`llama-gguf-split --merge FIRST whole.gguf`)"
            )
        if twice := next((name for name in header.tensors if name in seen), None):
            raise ModelLoadError(f"{path} has the tensor {twice!r}, and so has {seen[twice].name}: {_CURE}")
        seen |= dict.fromkeys(header.tensors, path)
    if len(paths) > 1 and len(seen) != whole:
        raise ModelLoadError(
            f"{paths[0]}: split.tensors.count={whole}, and its {len(paths)} parts have {len(seen)} tensors: {_CURE}"
        )


def models_in(directory: Path) -> list[Path]:
    """The GGUF files of models in a directory, of several parts the first, sorted; projectors are none."""
    return sorted({part_paths(path)[0] for path in directory.glob("*.gguf") if not _is_projector(path)})


def projectors_beside(path: Path) -> list[str]:
    """Names of the projectors in the directory of a model; none beside a projector itself."""
    return [] if _is_projector(path) else sorted(one.name for one in path.parent.glob("*.gguf") if _is_projector(one))


def is_gguf(path: Path) -> bool:
    """Whether a file is one by its name, or by its first bytes."""
    if path.suffix == ".gguf":
        return True
    try:
        with open_file(path) as file:
            return file.read(4) == b"GGUF"
    except OSError:
        return False


def listed(names: Sequence[str | Path]) -> str:
    """At most ten names."""
    return ", ".join([*map(str, names[:10]), *["..."] * (len(names) > 10)])


def _is_projector(path: Path) -> bool:
    return "mmproj" in path.name.lower()


def _number(header: GgufHeader, key: str, path: Path) -> int:
    value: int = check_value(key, header.get(key, 0), int, of=str(path), error=ModelLoadError)
    return value
