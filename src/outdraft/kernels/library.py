"""The built kernels, through their C interface. Data in: nothing; data out: a `ctypes` library, or None and a reason.

A library that lacks a function named here, or has a structure of another size, is refused as if there were none:
PyTorch computes, and the log has a warning; a caller that cannot do without the kernels raises `CapabilityError`.
`OUTDRAFT_KERNELS` chooses: "off" (PyTorch only), or one of `KINDS`; unset: the best that runs here.
"""

import ctypes
import os
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from outdraft.kernels.built_from import open_library
from outdraft.kernels.declared import SIGNATURES, STRUCTURES
from outdraft.options.errors import CapabilityError, ConfigError

_FILE = Path(__file__).parent / "_native.so"
KINDS = ("amx", "avx512", "avx2", "neon_dot", "neon", "portable")


def library() -> ctypes.CDLL | None:
    """The library, or None where there is none that fits what is declared here."""
    return _load()[0]


def require_library() -> ctypes.CDLL:
    """The library. Raises `CapabilityError` saying why there is none."""
    native, why_not = _load()
    if native is None:
        raise CapabilityError(why_not)
    return native


def why_none() -> str:
    """Why there is no library; empty where there is one."""
    return _load()[1]


@cache
def _load() -> tuple[ctypes.CDLL | None, str]:
    """The library, or why there is none."""
    return open_library(_FILE, SIGNATURES, STRUCTURES)


def library_file() -> Path:
    """Where the library lies, if it is built."""
    return _FILE


def wanted_kind() -> str | None:
    """Which kernels to use: one of `KINDS`, or None for none. Raises `ConfigError` where OUTDRAFT_KERNELS cannot be."""
    return _kind_for(os.environ.get("OUTDRAFT_KERNELS", ""))


@cache
def _kind_for(asked: str) -> str | None:
    if asked == "off":
        return None
    native = library()
    if asked:
        if asked not in KINDS:
            raise ConfigError(f"OUTDRAFT_KERNELS={asked!r}: it is 'off' or one of {', '.join(KINDS)}")
        if native is None or not native.od_has_kernels(asked.encode()):
            raise ConfigError(f"OUTDRAFT_KERNELS={asked}: not built, or this processor cannot run them; unset it")
        return asked
    return native.od_best_kernels().decode() if native is not None else None


def native_for(x: Tensor, *formats: torch.dtype) -> tuple[ctypes.CDLL, bytes] | None:
    """The library and the wanted kernels' name, if they run and can read `x`: float32, where no formats are named."""
    if x.dtype not in (formats or (torch.float32,)) or x.device.type != "cpu" or not x.is_contiguous():
        return None
    return _wanted(os.environ.get("OUTDRAFT_KERNELS"))


@cache
def _wanted(_: str | None) -> tuple[ctypes.CDLL, bytes] | None:
    """Of this environment."""
    native, kind = library(), wanted_kind()
    return None if native is None or kind is None else (native, kind.encode())


def pointer(values: Tensor | None) -> int | None:
    """A tensor as the functions take it; None is null."""
    return values.data_ptr() if values is not None else None


def check(result: int | None) -> int:
    """What a function returned, pointer or size; raises `RuntimeError` with the library's own words if it failed."""
    if not result:
        raise RuntimeError(f"native kernels: {require_library().od_error().decode()}")
    return result
