"""Whether a built library fits this binding: its functions are there, its structures are as large as ours.

A library of an older or newer checkout would read other fields than are written, and end the process or, worse, not.
What stands inside a function is not compared: who changes only that must build again without a warning.
"""

import ctypes
from collections.abc import Iterable, Mapping

SIZE_OF = "od_size_of"


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
