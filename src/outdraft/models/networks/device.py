"""The device that computes: the CPU, or a CUDA device that PyTorch finds on this machine."""

import re

import torch

from outdraft.options.checked import check_value
from outdraft.options.errors import CapabilityError
from outdraft.options.shown import shown

_NAME = re.compile(r"(cpu|cuda)(?::(\d{1,4}))?")


def choose_device(asked: str | torch.device) -> torch.device:
    """The device of this name: "cpu", "cuda", "cuda:1", ...; "auto" is CUDA where there is one, and else the CPU.

    Raises `CapabilityError` for a name that is not known and for a device that is not there, before anything is read.
    """
    name = str(check_value("device", asked, str | torch.device))
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if count else "cpu"
    matched = _NAME.fullmatch(name)
    if matched is None:
        raise _refused(asked, "outdraft computes on a CPU and on CUDA: take 'cpu', 'cuda' or 'auto'")
    if matched[1] == "cpu":
        return torch.device("cpu")
    if int(matched[2] or 0) >= count:
        built = torch.version.cuda or torch.version.hip
        found = f"finds {count} CUDA device{'s' * (count != 1)} (counted from 0)" if built else "is built without CUDA"
        raise _refused(asked, f"this PyTorch {found}: take 'cpu' or 'auto'")
    try:
        return torch.empty(1, device=name).device
    except RuntimeError as error:  # of the driver, or all of its memory is taken
        raise _refused(asked, f"{str(error).splitlines()[0][:200]}: take 'cpu'") from error


def _refused(asked: str | torch.device, why: str) -> CapabilityError:
    return CapabilityError(f"device={shown(asked)} cannot be used here: {why}")
