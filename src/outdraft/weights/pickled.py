"""Tensors of a `.pt` or `.bin` file: PyTorch's pickles, read without running anything that they hold.

`torch.load(weights_only=True)` builds tensors and plain containers and refuses every other object.
"""

from pathlib import Path
from pickle import UnpicklingError
from zipfile import ZIP_STORED, ZipFile, is_zipfile

import torch
from torch import Tensor

from outdraft.options.errors import ModelLoadError
from outdraft.options.read_file import require_file
from outdraft.options.shown import shown

PICKLED = "pytorch_model.bin"


def read_pickled(path: Path) -> dict[str, Tensor]:
    """Name -> tensor. Raises `ModelLoadError` for a file that is cut, damaged, or holds more than tensors."""
    found = _unpickled(path)
    if not isinstance(found, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in found.items()
    ):
        raise ModelLoadError(
            f"{path} holds a {type(found).__name__} and no table of tensors, so it is no draft head: name another file"
        )
    for name, tensor in found.items():
        if (kind := _strange(tensor)) is not None:
            raise ModelLoadError(f"{path}: the tensor {shown(name)} is {kind}: save it as a dense one of real numbers")
    return found


def read_pickled_vector(path: Path, name: str) -> Tensor:
    """The one tensor of a file: bare, or under `name` in a table. Raises `ModelLoadError` as `read_pickled` does."""
    found = _unpickled(path)
    tensor = found.get(name) if isinstance(found, dict) else found
    if not isinstance(tensor, Tensor):
        raise ModelLoadError(f"{path} holds no tensor, bare or under {name!r}: name another file")
    if (kind := _strange(tensor)) is not None:
        raise ModelLoadError(f"{path}: its tensor is {kind}: save it as a dense one of real numbers")
    return tensor


def _unpickled(path: Path) -> object:
    try:
        if is_zipfile(require_file(path)):
            _refuse_packed(path)
        return torch.load(path, map_location="cpu", weights_only=True)  # mapped, records that are cut would pass
    except UnpicklingError as error:
        raise ModelLoadError(
            f"{path} holds more than tensors: reading such a pickle could run any code, so it is refused "
            f"({_reason(error)}): ask for it as safetensors, or save its tensors alone"
        ) from error
    except Exception as error:  # a damaged record may break any part of the reader
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ModelLoadError(f"{path} is cut short or damaged ({reason}): download it again") from error


def _reason(error: UnpicklingError) -> str:
    """What PyTorch refused, without its advice on how to read the file all the same."""
    return str(error).rpartition("WeightsUnpickler error:")[2].strip().splitlines()[0].partition(". ")[0]


def _strange(tensor: Tensor) -> str | None:
    """What no parameter can be filled with, in words."""
    if tensor.is_meta:
        return "without numbers (of the meta device)"
    if tensor.is_quantized:
        return "quantized"
    if tensor.layout != torch.strided:
        return "sparse"
    return "complex" if tensor.is_complex() else None


def _refuse_packed(path: Path) -> None:
    """Raise `ValueError` for records that are smaller than what they hold: PyTorch stores them as they are, and would
    make all of it before it looked.
    """
    with ZipFile(path) as file:
        packed = next((one.filename for one in file.infolist() if one.compress_type != ZIP_STORED), None)
    if packed is not None:
        raise ValueError(f"its record {shown(packed)} is compressed, which PyTorch writes none")
