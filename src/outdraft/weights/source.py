"""What every source of weights offers: tensors by name, and their shapes and types without reading them."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from outdraft.options.errors import ModelLoadError

REAL = {"F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


class TensorSource(Mapping[str, Tensor]):
    """Tensors of one model, read when asked for. `origin`: the directory or file, for messages."""

    origin: Path

    @abstractmethod
    def __contains__(self, name: object) -> bool:
        """Whether there is such a tensor; `Mapping`'s own way would read it."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape, from the header."""

    @abstractmethod
    def dtype_name(self, name: str) -> str:
        """A tensor's type as safetensors spells it: F32, BF16, I8, ..."""

    def real_dtype(self, name: str) -> torch.dtype | None:
        """A tensor's type where it is one that weights are computed in; None: integers, bytes, fewer bits."""
        return REAL.get(self.dtype_name(name).upper().replace("FLOAT", "F"))  # or as PyTorch spells it

    def require_real(self, name: str) -> None:
        """Raise `ModelLoadError` for a weight of another type, whose numbers alone are not the weight's."""
        if self.real_dtype(name) is None:
            raise ModelLoadError(
                f"tensor {name!r} in {self.origin} is of type {self.dtype_name(name)}, and no record of a quantization "
                f"says how to read it: take files with weights as {', '.join(REAL)}"
            )
