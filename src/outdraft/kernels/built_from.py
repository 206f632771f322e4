"""Open a built library, if it fits this binding: its functions are there, its structures are as large as ours.

A library of an older or newer checkout would read other fields than are written, and end the process or, worse, not.
What stands inside a function is not compared: who changes only that must build again without a warning.
"""

import ctypes
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SIZE_OF = "od_size_of"
Signature = tuple[Any, Any]  # result, arguments
_log = logging.getLogger(__name__)


def open_library(
    file: Path, functions: Mapping[str, Signature], structures: Mapping[str, type]
) -> tuple[ctypes.CDLL | None, str]:
    """The library in this file, ready to be called, or why there is none. `functions`, `structures`: as declared."""
    if not file.exists():
        why_not = "the native kernels are not built: reinstall outdraft where a C++17 compiler is"
        if os.environ.get("OUTDRAFT_KERNELS") != "off":  # they were not wanted
            _log.warning(
                "%s; PyTorch computes the models, more slowly, and may write another, equally valid text", why_not
            )
        return None, why_not
    try:
        found = ctypes.CDLL(str(file))
        stranger = find_stranger(found, functions, structures)
    except OSError as error:
        found, stranger = None, str(error)
    if found is None or stranger is not None:
        why_not = (
            f"the native kernels in {file} were not built from these sources ({stranger}): reinstall outdraft, in a "
            "checkout with `pip install -e .`"
        )
        _log.warning("%s; until then PyTorch computes the models, more slowly", why_not)
        return None, why_not
    for name, (result, arguments) in functions.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found, ""


def find_stranger(native: ctypes.CDLL, functions: Iterable[str], structures: Mapping[str, type]) -> str | None:
    """What shows that the library was built from other sources; None: no function and no size does.

    `structures`: the name in C++ -> the `ctypes` class.
    """
    absent = [name for name in (SIZE_OF, *functions) if not hasattr(native, name)]
    if absent:
        return f"it has no function {absent[0]}"
    size_of = getattr(native, SIZE_OF)
    size_of.restype, size_of.argtypes = ctypes.c_int64, [ctypes.c_char_p]
    for name, ours in structures.items():
        size = size_of(name.encode())
        if size != ctypes.sizeof(ours):
            return f"{name} has {size} bytes there, and {ctypes.sizeof(ours)} here"
    return None
