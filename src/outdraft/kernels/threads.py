"""Two pools of threads on the same cores: PyTorch's and the kernels'. While the kernels work, PyTorch keeps one thread.

PyTorch's threads spin for milliseconds after their last work, and what is left for PyTorch beside a native model is
small.
Measured on two cores, rounds of the zoo's drafters took 1.1 to 2 times as long with both pools awake.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from outdraft.core.cores import useful_threads


def num_threads() -> int:
    """The most threads that a model computes with: PyTorch's number, but no more than a quota keeps busy."""
    return useful_threads(torch.get_num_threads())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Inside, PyTorch uses so many threads; afterwards as many as before."""
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
