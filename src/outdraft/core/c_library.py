"""The C library of this process, where it can be asked for what Python does not offer."""

import ctypes
import sys
from typing import Any


def c_library(wanted: str) -> Any:
    """The C library if it is one that has this function; else None."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    return library if hasattr(library, wanted) else None


def give_back_freed() -> None:
    """Return to the system what the C library keeps of freed memory, in the middle of its heap too."""
    if (library := c_library("malloc_trim")) is not None:
        library.malloc_trim(0)
