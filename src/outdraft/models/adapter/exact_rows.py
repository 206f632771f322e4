"""Other people's layers, computed so that a row's bits do not depend on the rows beside it.

    linear maps, products with a matrix   in tiles that keep rows apart (`nn/invariance.py`), or row by row
    sigmoid, gelu, softmax, cos, ...      in pieces in which a row cannot meet another row's tail (`nn/activation.py`)
    everything else                       as it is, where it is known to treat each row by itself; else it is noted

A `TorchFunctionMode` sees every call of PyTorch that their code makes. Whatever is not known is noted by name, and then
a model is not called exact, because a trial on a few tokens would not show every difference of a last bit.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from outdraft.nn.activation import rowwise
from outdraft.nn.invariance import find_plain_tile
from outdraft.nn.linear import RowRange, RowTile

_ALONE = RowTile(most=1, least=1, packed=False)
_ELEMENTWISE = set(
    """
    cos erf exp expm1 gelu log log1p log_softmax pow selu elu sigmoid silu sin softmax softplus sqrt tanh mish
    hardswish relu6 leaky_relu
    """.split()
)
_PRODUCTS = {"matmul", "__matmul__", "mm", "__rmatmul__"}
_APART = set(
    """
    __add__ __and__ __bool__ __contains__ __eq__ __ge__ __get__ __getitem__ __gt__ __iadd__ __imul__ __index__
    __int__ __invert__ __iter__ __itruediv__ __le__ __len__ __lt__ __mul__ __ne__ __neg__ __or__ __radd__ __rmul__
    __rsub__ __rtruediv__ __setitem__ __sub__ __truediv__ _is_all_true _set_grad_enabled abs add add_ all amax any
    arange argmax argsort as_tensor bincount bool broadcast_tensors broadcast_to cat chunk clamp clamp_ clamp_min
    clone contiguous copy_ data_ptr detach device dim div div_ dropout embedding empty empty_like eq expand
    expand_as fill_ flatten flip float full gather ge get_device greater gt half index_add index_add_ index_select
    is_contiguous is_floating_point item layer_norm le logical_and logical_not logical_or long lt masked_fill
    masked_fill_ max maximum mean min minimum movedim mul mul_ multiply narrow ndimension ne neg new_empty
    new_ones new_zeros nonzero norm numel one_hot ones ones_like pad permute relu repeat repeat_interleave
    requires_grad_ reshape rms_norm round rsqrt rsub scatter scatter_ select size sort split square squeeze stack
    std stride sub sub_ sum swapaxes t to tolist topk transpose tril triu type type_as unbind unflatten unsqueeze
    var view where zero_ zeros zeros_like
    """.split()
)  # each row by itself, or only the order and place of what is there


class ExactRows(TorchFunctionMode):
    """While this lasts. `num_rows` of the pass, of which those in `bulk` are computed in one piece, always the same.

    unknown: takes the names of functions that may mix rows.
    """

    def __init__(self, num_rows: int, bulk: Sequence[RowRange], unknown: set[str]) -> None:
        super().__init__()
        self.unknown = unknown
        self._num_rows = num_rows
        self._bulk = bulk

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", str(func))
        if name == "linear":
            return self._linear(*args, **kwargs)
        if name in _PRODUCTS and _is_rows_by_matrix(args) and not kwargs:
            left, right = args if name != "__rmatmul__" else args[::-1]
            return _in_tiles(left, right.shape[-1], _ALONE, lambda piece: func(piece, right))
        if name in _ELEMENTWISE and isinstance(args[0], Tensor) and args[0].dim() > 1:
            return self._elementwise(func, args, kwargs)
        outer = name in _PRODUCTS and args[0].shape[-1] == 1  # one product each, and no sum
        if not (outer or name in _APART or name in _ELEMENTWISE or _has_no_rows(args)):
            self.unknown.add(name)
        return func(*args, **kwargs)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """[..., in] -> [..., out]."""
        threads = torch.get_num_threads()
        tile = find_plain_tile(tuple(weight.shape), bias is not None, weight.dtype, weight.device, threads)
        return _in_tiles(x, weight.shape[0], tile, lambda piece: F.linear(piece, weight, bias), self._bulk_of(x))

    def _bulk_of(self, x: Tensor) -> Sequence[RowRange]:
        """Which rows of x are the pass's bulk rows: x may be of some rows only, those of an expert."""
        return self._bulk if x.numel() // x.shape[-1] == self._num_rows else ()

    def _elementwise(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        x, rest = args[0], args[1:]
        dim = kwargs.get("dim", rest[0] if rest and func.__name__ in ("softmax", "log_softmax") else -1)
        if dim not in (-1, x.dim() - 1) or not x.numel() or any(isinstance(one, Tensor) for one in rest):
            self.unknown.add(func.__name__)
            return func(*args, **kwargs)  # type: ignore[no-any-return]
        if "softmax" in func.__name__:
            rest, kwargs = (), {**kwargs, "dim": -1}
        out = rowwise(lambda piece: func(piece, *rest, **kwargs), x.reshape(-1, x.shape[-1]))
        return out.view(x.shape)


def _has_no_rows(args: tuple[Any, ...]) -> bool:
    """Whether only numbers are given."""
    return not any(isinstance(one, Tensor) and one.dim() for one in args)


def _is_rows_by_matrix(args: tuple[Any, ...]) -> bool:
    return len(args) == 2 and all(isinstance(one, Tensor) for one in args) and args[0].dim() > 1 and args[1].dim() == 2


def _in_tiles(
    x: Tensor, num_out: int, tile: RowTile, product: Callable[[Tensor], Tensor], bulk: Sequence[RowRange] = ()
) -> Tensor:
    """product(x), x [..., in] -> [..., num_out], in pieces of a tile's size."""
    rows = x.reshape(-1, x.shape[-1])
    pieces: list[Tensor] = []
    done = 0
    for start, stop in (*bulk, (len(rows), len(rows))):
        for first in range(done, start, tile.most):
            piece = rows[first : min(first + tile.most, start)]
            missing = tile.least - len(piece)
            made = product(F.pad(piece, (0, 0, 0, missing)) if missing > 0 else piece)
            pieces.append(made[: len(piece)])
        if stop > start:
            pieces.append(product(rows[start:stop]))
        done = stop
    if not pieces:
        return x.new_empty(*x.shape[:-1], num_out)
    return (pieces[0] if len(pieces) == 1 else torch.cat(pieces)).view(*x.shape[:-1], num_out)
