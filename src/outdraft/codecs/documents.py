"""A text or a JSON object from a model directory; errors name the file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import load_text

_LARGEST = 256 << 20  # bytes of a tokenizer.json; the largest that are published have 35 MB


def read_text(path: Path) -> str:
    """Raises `ModelLoadError` for what is no UTF-8, or cannot be read."""
    try:
        return load_text(path, most=_LARGEST)
    except (UnicodeDecodeError, OSError) as error:
        raise ModelLoadError(f"{path.parent.name}/{path.name} is no readable UTF-8 text: {error}") from error


def read_json(path: Path) -> Mapping[str, Any]:
    """An optional JSON object; {} if the file is absent. Raises `ModelLoadError` for a damaged one."""
    if not os.path.lexists(path):
        return {}
    try:
        read = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path.parent.name}/{path.name} is not readable JSON: {error}") from error
    if not isinstance(read, dict):
        raise ModelLoadError(f"{path.parent.name}/{path.name} must hold one JSON object, not a {type(read).__name__}")
    return read
