"""Which weights lie in a directory, in 16 digits: what was learned of a model names it by them.

Weights are sampled (size, and blocks spread over each file), because a large model takes longer to read than to use.
"""

import hashlib
from pathlib import Path

from outdraft.options.read_file import open_file

_BLOCK, _NUM_BLOCKS = 1 << 16, 16
_KINDS = ("*.safetensors", "*.bin", "*.pt")


def digest_weights(place: Path) -> str:
    """16 hexadecimal digits of a model directory, its config and its weight files, or of one GGUF file."""
    whole = hashlib.sha256()
    files = [place] if place.is_file() else sorted([*weight_files(place), place / "config.json"])
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


def weight_files(directory: Path) -> list[Path]:
    """The weight files of a directory that are loaded: safetensors or, where there are none, pickles."""
    return next((found for kind in _KINDS if (found := list(directory.glob(kind)))), [])
