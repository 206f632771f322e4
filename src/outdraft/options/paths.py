"""A path that a user gave. Data in: anything; data out: a `Path` with `~` replaced, or an error of ours."""

import os
from pathlib import Path
from typing import Any

from outdraft.options.errors import ConfigError, OutdraftError
from outdraft.options.shown import shown


def user_path(given: Any, *, error: type[OutdraftError] = ConfigError) -> Path:
    """Raises `error` for what can name no file: no text, a NUL in it, a name too long, an unknown user's home."""
    try:
        path = Path(given).expanduser()
        path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return path
    except (TypeError, ValueError, RuntimeError, OSError) as reason:
        why = os.strerror(reason.errno) if isinstance(reason, OSError) and reason.errno else reason
        raise error(f"{shown(given)} can be no path ({why}): give the path of a file or a directory") from reason
    return path
