"""Tensors of a `.pt` or `.bin` file: PyTorch's pickles, read without running anything that they hold.

`torch.load(weights_only=True)` builds tensors and plain containers and refuses every other object.
"""

from pathlib import Path
from pickle import UnpicklingError
from zipfile import is_zipfile

import torch
from torch import Tensor

from outdraft.core.errors import ModelLoadError
from outdraft.core.read_file import require_file

PICKLED = "pytorch_model.bin"


def read_pickled(path: Path) -> dict[str, Tensor]:
    """Name -> tensor. Raises `ModelLoadError` for a file that is cut, damaged, or holds more than tensors."""
    try:
        found = torch.load(require_file(path), map_location="cpu", weights_only=True, mmap=is_zipfile(path))
    except UnpicklingError as error:
        raise ModelLoadError(
            f"{path} holds more than tensors: reading such a pickle could run any code, so it is refused "
            f"({str(error).splitlines()[0]}): ask for it as safetensors, or save its tensors alone"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelLoadError(f"{path} is cut short or damaged ({reason}): download it again") from error
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in found.items()
    ):
        raise ModelLoadError(
            f"{path} holds a {type(found).__name__} and no table of tensors, so it is no draft head: name another file"
        )
    return found
