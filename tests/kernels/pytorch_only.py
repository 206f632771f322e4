"""Switch the kernels off for a while, so that PyTorch's arithmetic says what is right."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def pytorch_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTDRAFT_KERNELS", "off")
        yield
