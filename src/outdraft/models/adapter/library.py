"""`transformers`, imported when a model needs it and not before."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outdraft.options.errors import ModelLoadError

OLDEST = 5  # the first major version whose layers hand all of their attention over


def require_transformers(kind: str) -> Any:
    """The package. Raises `ModelLoadError` naming the `model_type` that needs it, and the cure."""
    cure = "pip install 'outdraft[transformers]'"
    try:
        library: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise ModelLoadError(
            f"config.json: model_type={kind!r} is not supported by outdraft's own layers and needs transformers, "
            f"which is not installed: {cure}"
        ) from error
    version = str(library.__version__)
    if int(version.partition(".")[0]) < OLDEST:
        raise ModelLoadError(
            f"config.json: model_type={kind!r} needs transformers {OLDEST} or newer, and {version} is installed: {cure}"
        )
    return library


@contextmanager
def quiet(library: Any) -> Iterator[None]:
    """Without progress bars and warnings of theirs; both are as they were afterwards."""
    told = library.utils.logging
    level, bars = told.get_verbosity(), told.is_progress_bar_enabled()
    told.set_verbosity_error()
    told.disable_progress_bar()
    try:
        yield
    finally:
        told.set_verbosity(level)
        if bars:
            told.enable_progress_bar()


def first_line(error: Exception) -> str:
    """The beginning of an error of transformers, on one line."""
    return " ".join(str(error).split())[:200]
