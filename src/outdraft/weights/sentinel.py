"""The NaN sentinel: parameters are born NaN, and after loading none may be left.

It catches what name and shape checks cannot: a table that forgot a parameter, a half-written file, a broken checkpoint.
"""

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from outdraft.options.errors import ModelLoadError


def require_filled(parameters: Iterable[tuple[str, Tensor]], source: Path) -> None:
    """Raise if any tensor holds NaN."""
    empty = [
        name
        for name, tensor in parameters
        if tensor.is_floating_point() and tensor.numel() and bool(tensor.amax().isnan())  # in one reading, as NaN wins
    ]
    if empty:
        raise ModelLoadError(
            f"{len(empty)} parameters hold NaN after loading {source}, e.g. {', '.join(empty[:3])}: "
            "the file is damaged, or already was so when it was written; download it again, or take an earlier "
            "checkpoint"
        )
