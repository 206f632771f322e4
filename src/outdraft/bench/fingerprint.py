"""Short names for long things: whether two runs had the same prompt, the same settings."""

import hashlib
import json
from typing import Any


def digest(data: Any) -> str:
    """16 hexadecimal digits of plain data; the order of keys does not matter."""
    written = json.dumps(data, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(written.encode()).hexdigest()[:16]
