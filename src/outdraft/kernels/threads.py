"""Two pools of threads on the same cores: PyTorch's and the kernels'. While the kernels work, PyTorch keeps one thread.

PyTorch's threads spin for milliseconds after their last work, and what is left for PyTorch beside a native model is
small.
Measured on two cores, rounds of the zoo's drafters took 1.1 to 2 times as long with both pools awake.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_torch_thread(wanted: bool) -> Iterator[None]:
    """Inside, PyTorch uses one thread (if `wanted`); afterwards as many as before."""
    before = torch.get_num_threads()
    if wanted and before > 1:
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
    else:
        yield
