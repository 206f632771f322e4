"""Read every prompt beside others in slices of layers, where the target can, however short it is."""

from collections.abc import Iterator
from contextlib import contextmanager

from outdraft.core.sequence import CHUNK
from outdraft.engine.scheduler import pace


@contextmanager
def in_slices(always: bool = True) -> Iterator[None]:
    """In this block, for all engines; `always` False: as they do by themselves."""
    before = pace.THIN
    pace.THIN = CHUNK + 1 if always else before
    try:
        yield
    finally:
        pace.THIN = before
