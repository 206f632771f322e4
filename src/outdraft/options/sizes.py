"""Sizes of memory as users read and write them: "512MiB", "2GB"."""

import re
import sys

from outdraft.options.checked import check_value
from outdraft.options.errors import ConfigError
from outdraft.options.shown import shown


def read_bytes(size: int | str, of: str = "weights_memory") -> int:
    """`512MiB`, `2GB`, or a number of bytes. `of`: what is named when it is something else (`ConfigError`)."""
    size = check_value(of, size, int | str)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(B|[KMGT]i?B?)?", str(size).strip(), re.IGNORECASE)
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"{of}={shown(size)} is no size: write bytes, or a number with a unit, as '512MiB' or '2GB'")
    unit = (found[2] or "B").upper()
    size = float(found[1]) * (1024 if "I" in unit else 1000) ** "BKMGT".index(unit[0])
    return int(min(size, sys.maxsize))


def size_text(num_bytes: int) -> str:
    """ "98 MB", "4.9 GB": decimal, as disks are sold."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.{0 if num_bytes >= 1e7 else 1}f} MB"
