"""The number format that training computes in: one place decides, and says why.

    asked for     stored in     this CPU's instructions     computes in
    a format      any           any                         that format
    nothing       bfloat16      multiply bfloat16           bfloat16, under autocast
    nothing       bfloat16      do not                      float32, as its products would be many times slower
    nothing       another       any                         as it is stored

Without such instructions PyTorch multiplies bfloat16 by plain loops: on one thread of a Xeon held to AVX2
(`ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2`) a product of 1024 x 512 and 512 x 1024 takes 27 times as long as
in float32. The target is then loaded in float32 as well, since autocast is what lets the two formats meet.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.models.files.load import fill_decoder, named_dtype, open_weights
from outdraft.models.networks.base import Decoder
from outdraft.models.networks.device import choose_device
from outdraft.options.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What passes compute in, and why."""

    dtype: torch.dtype
    stored: torch.dtype  # what it would be without a reason against it: an engine serves it in this one
    line: str  # for the progress report


def has_bfloat16() -> bool:
    """Whether this CPU multiplies matrices of bfloat16 by instructions of its own, through oneDNN."""
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)  # missing where PyTorch has no oneDNN
    return supported is not None and bool(supported())


def choose_format(asked: torch.dtype | None, stored: torch.dtype, device: torch.device) -> Format:
    """The decision. `asked`: None where the user named none; `stored`: of the weights, or what a plan computes in."""
    dtype = stored if asked is None else asked
    slow = dtype == torch.bfloat16 and device.type == "cpu" and not has_bfloat16()
    if slow and asked is None:
        line = "computes in float32: this CPU has no instructions for bfloat16, which is much slower without them"
        return Format(dtype=torch.float32, stored=dtype, line=line)
    line = f"computes in {name_of(dtype)}{'' if asked is None else ', as asked'}"
    if slow:
        line += "; this CPU has no instructions for it, so this is much slower than float32"
    return Format(dtype=dtype, stored=dtype, line=line)


def open_target(source: Path, asked: str, device: str) -> tuple[Decoder, Format]:
    """The target to learn from, in the format that passes compute in. `asked`: "auto", or the name of a format.

    Raises `ModelLoadError` and `CapabilityError` as `load_model` does.
    """
    place, stored = choose_device(device), open_weights(source, asked)
    found = choose_format(named_dtype(asked), stored.dtype, place)
    if found.dtype != stored.dtype:
        stored = open_weights(source, found.dtype)
    return fill_decoder(stored, place), found


def computing(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Passes inside compute in this format; parameters are float32, or of the format itself."""
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)


@contextmanager
def without_denormals() -> Iterator[None]:
    """Inside, float32 numbers below 1.2e-38 count as 0. x86 multiplies such numbers many times more slowly than
    others, and tails of distributions and squares of their gradients can be full of them: a step of one kind took 3.4
    times as long.

    Holds for this thread and those that it starts; where a processor cannot do it, nothing changes.
    """
    already = float(torch.tensor(1e-39) * 1.0) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)


def name_of(dtype: torch.dtype) -> str:
    """As users write it: "float32"."""
    return str(dtype).removeprefix("torch.")


def require_format(run_dir: Path, begun: str, now: str) -> None:
    """Raise `ConfigError` where a run would go on in another format than it began in: its weights would be others."""
    if begun == now:
        return
    lacks = "" if has_bfloat16() else " (this CPU has no instructions for bfloat16)"
    raise ConfigError(
        f"{run_dir} holds a run that computes in {begun}, and here it would go on in {now}{lacks} and end with other "
        f"weights: ask for the format it began in (--dtype {begun}), continue on a machine like the one it began "
        "on, or name another directory"
    )
