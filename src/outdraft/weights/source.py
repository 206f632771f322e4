"""What every source of weights offers: tensors by name, and their shapes and types without reading them."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor


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
