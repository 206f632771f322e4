"""Sizes of memory, as a user writes them."""

import re
import sys

from outdraft.core.checked import check_value
from outdraft.core.errors import ConfigError
from outdraft.core.shown import shown


def read_bytes(size: int | str | None) -> int | None:
    """`512MiB`, `2GB`, a number of bytes, or None. Raises `ConfigError` for anything else."""
    if size is None:
        return None
    size = check_value("weights_memory", size, int | str)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B?)?", str(size).strip(), re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise ConfigError(
            f"weights_memory={shown(size)} is no size: write bytes, or a number with a unit, as '512MiB' or '2GB'"
        )
    unit = (found[2] or "B").upper()
    size = float(found[1]) * (1024 if "I" in unit else 1000) ** "BKMGT".index(unit[0])
    return int(min(size, sys.maxsize))
