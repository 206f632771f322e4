"""A fixed number of threads for everything that is measured inside."""

from collections.abc import Iterator
from contextlib import contextmanager

from outdraft.kernels.library import library
from outdraft.kernels.threads import torch_threads


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Inside, every pass of this process takes so many threads, if it was packed for them."""
    native = library()
    before = native.od_fix_threads(count) if native is not None else 0
    try:
        with torch_threads(count):
            yield
    finally:
        if native is not None:
            native.od_fix_threads(before)
