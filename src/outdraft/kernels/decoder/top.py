"""The best few tokens of each row of logits: the native twin of `log_softmax` with `topk`.

Data in: logits [N, V] float32 on a CPU; data out: plain numbers, or None where the kernels do not run or a row's
largest value is not finite. `top_ids` takes any logits.
"""

import ctypes

import torch
from torch import Tensor

from outdraft.kernels.library import native_for


def top_tokens(logits: Tensor, count: int) -> tuple[list[list[int]], list[list[float]]] | None:
    """The `count` best of each row, best first, and their log probabilities."""
    if (native_and_kind := native_for(logits)) is None:
        return None
    native, kind = native_and_kind
    rows, size = logits.shape
    found, logs = (ctypes.c_int32 * (rows * count))(), (ctypes.c_float * (rows * count))()
    if not native.od_top_tokens(logits.data_ptr(), rows, size, count, found, logs, kind):
        return None
    cuts = range(0, rows * count, count)
    return [found[i : i + count] for i in cuts], [logs[i : i + count] for i in cuts]


def top_ids(logits: Tensor, count: int) -> Tensor:
    """The `count` best of each row, best first: [N, V] -> [N, count] on the CPU; by PyTorch where need be."""
    if (native_and_kind := native_for(logits)) is not None:
        native, kind = native_and_kind
        rows, size = logits.shape
        found = torch.empty(rows, count, dtype=torch.int32)
        if native.od_top_tokens(logits.data_ptr(), rows, size, count, found.data_ptr(), None, kind):
            return found
    return logits.topk(count, -1).indices.cpu()
