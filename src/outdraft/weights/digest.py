"""Which weights lie in a directory, in 16 digits: what was learned of a model names it by them.

Weights are sampled (size, and blocks spread over each file), because a large model takes longer to read than to use.
"""

import hashlib
from pathlib import Path

from outdraft.options.read_file import open_file
from outdraft.weights.gguf_files import part_paths

_BLOCK, _NUM_BLOCKS = 1 << 16, 16
_KINDS = ("*.safetensors", "*.bin", "*.pt")


def digest_weights(place: Path) -> str:
    """16 hexadecimal digits of a model directory, its config and its weight files, or of a GGUF file."""
    whole = hashlib.sha256()
    files = weight_files(place) if place.is_file() else sorted([*weight_files(place), place / "config.json"])
    for path in files:
        if not path.is_file():
            continue
        size = path.stat().st_size
        whole.update(f"{path.name} {size}\n".encode())
        with open_file(path) as file:
            for i in range(_NUM_BLOCKS):
                file.seek(max(0, size - _BLOCK) * i // (_NUM_BLOCKS - 1))
                whole.update(file.read(_BLOCK))
    return whole.hexdigest()[:16]


def weight_files(place: Path) -> list[Path]:
    """The weight files that are loaded: safetensors or, where there are none, pickles; of a GGUF file all its parts."""
    if place.is_file():
        return part_paths(place)
    return next((found for kind in _KINDS if (found := list(place.glob(kind)))), [])
