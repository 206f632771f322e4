"""What every call of a native function needs: the library that may read a tensor, and what it returned, checked."""

import ctypes
import os
from functools import cache

import torch
from torch import Tensor

from outdraft.kernels.library import library, require_library, wanted_kind


def native_for(x: Tensor) -> tuple[ctypes.CDLL, bytes] | None:
    """The library and the wanted kernels' name, if they run and can read `x`."""
    if x.dtype != torch.float32 or x.device.type != "cpu" or not x.is_contiguous():
        return None
    return _wanted(os.environ.get("OUTDRAFT_KERNELS"))


@cache
def _wanted(_: str | None) -> tuple[ctypes.CDLL, bytes] | None:
    """Of this environment."""
    native, kind = library(), wanted_kind()
    return None if native is None or kind is None else (native, kind.encode())


def check(result: int | None) -> int:
    """What a function returned, pointer or size; raises `RuntimeError` with the library's own words if it failed."""
    if not result:
        raise RuntimeError(f"native kernels: {require_library().od_error().decode()}")
    return result
