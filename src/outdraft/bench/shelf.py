"""Big files that a bench makes once and finds again: inflated and rounded models, and the forms that peers read.

A file's name holds a fingerprint of its inputs, so changed weights never find an old file. A file is written beside its
place and renamed when it is complete, so an interrupted run leaves no half of one under that name.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from outdraft.bench.fingerprint import digest
from outdraft.options.errors import ConfigError
from outdraft.options.paths import user_path
from outdraft.weights.user_cache import user_cache


class Shelf:
    """Made files by name, in the directory `root` (default: `outdraft` in the user's cache)."""

    def __init__(self, root: str | Path | None = None) -> None:
        self.root = user_path(root) if root is not None else user_cache()

    def get(self, name: str, made_of: Any, make: Callable[[Path], object]) -> Path:
        """The path of a file or directory that `make(path)` writes; it is made now unless it is there.

        `made_of`: its inputs as plain data, for the fingerprint.

        Raises:
            ConfigError: the directory cannot be written to.
        """
        stem, dot, end = name.partition(".")
        place = self.root / f"{stem}-{digest(made_of)[:10]}{dot}{end}"
        if place.exists():
            return place
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=self.root, prefix=".making-") as above:
                half_done = Path(above) / place.name
                make(half_done)
                half_done.rename(place)
        except OSError as error:
            raise ConfigError(f"{place} cannot be made: {error}; choose another directory with --cache") from error
        return place
