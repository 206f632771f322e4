"""Where things are kept that were made once and can be made again: `outdraft` in the user's cache directory."""

import os
from pathlib import Path


def user_cache(*parts: str) -> Path:
    """A place below it, which need not exist: in XDG_CACHE_HOME, or else in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").joinpath("outdraft", *parts)
