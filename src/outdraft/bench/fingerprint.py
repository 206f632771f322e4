"""Short names for long things: whether two runs had the same weights, the same prompt, the same settings.

Weights are sampled (size, and blocks spread over each file), because a large model takes longer to read than to bench.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

_BLOCK, _NUM_BLOCKS = 1 << 16, 16


def digest(data: Any) -> str:
    """16 hexadecimal digits of plain data; the order of keys does not matter."""
    written = json.dumps(data, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def digest_weights(directory: Path) -> str:
    """16 hexadecimal digits of a model directory: its config and its weight files."""
    whole = hashlib.sha256()
    for path in sorted([*directory.glob("*.safetensors"), directory / "config.json"]):
        if not path.is_file():
            continue
        size = path.stat().st_size
        whole.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for i in range(_NUM_BLOCKS):
                file.seek(max(0, size - _BLOCK) * i // (_NUM_BLOCKS - 1))
                whole.update(file.read(_BLOCK))
    return whole.hexdigest()[:16]
