"""Where things are kept that were made once and can be made again: `outdraft` in the user's cache directory.

`OUTDRAFT_CACHE` names another directory, or is "off": then nothing is kept that was not asked for.
`OUTDRAFT_CACHE_LIMIT` bounds what packed weights take there ("20GiB").
"""

import os
from pathlib import Path

from outdraft.options.errors import ConfigError
from outdraft.options.sizes import read_bytes

_OFF = ("off", "0", "no", "false")
_LIMIT = "32GiB"


def user_cache(*parts: str) -> Path:
    """A path in the cache directory, OUTDRAFT_CACHE or `outdraft` in XDG_CACHE_HOME or ~/.cache; it need not exist.

    Raises `ConfigError` where that is in the home directory of a user who has none.
    """
    own = os.environ.get("OUTDRAFT_CACHE", "")
    try:
        if own and own.lower() not in _OFF:
            return Path(own).expanduser().joinpath(*parts)
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").joinpath("outdraft", *parts)
    except RuntimeError as error:
        raise ConfigError(
            f"OUTDRAFT_CACHE={own} leaves the cache to the home directory, and this user has none ({error}): name a "
            "directory in OUTDRAFT_CACHE"
        ) from error


def is_kept() -> bool:
    """Whether files that the user did not ask for may be kept in the cache: not with OUTDRAFT_CACHE=off, nor where no
    place is named and there is no home directory."""
    try:
        user_cache()
    except ConfigError:
        return False
    return os.environ.get("OUTDRAFT_CACHE", "").lower() not in _OFF


def cache_limit() -> int:
    """The most bytes of packed weights to keep. Raises `ConfigError` for an OUTDRAFT_CACHE_LIMIT that is no size."""
    return read_bytes(os.environ.get("OUTDRAFT_CACHE_LIMIT") or _LIMIT, of="OUTDRAFT_CACHE_LIMIT")
