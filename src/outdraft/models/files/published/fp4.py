"""Weights in floats of 4 bits (e2m1), in compressed-tensors and ModelOpt checkpoints.

    weight_packed, or weight   uint8 [out, in / 2]             input 2j is the low half of byte j
    weight_scale               NVFP4: F8_E4M3 [out, in / 16]; MXFP4: U8 or F8_E8M0 [out, in / 32], an exponent plus 127
    weight_global_scale        NVFP4 of compressed-tensors: float32 [1], by which all weights are divided
    weight_scale_2             NVFP4 of ModelOpt: float32, by which they are multiplied

They stay what they are in blocks of the same names; the factor of the whole map stands beside (`QuantConfig.factors`).
Layout: compressed-tensors, compressors/nvfp4 and mxfp4 (https://github.com/vllm-project/compressed-tensors).
"""

import torch
from torch import Tensor

from outdraft.models.files.published.blocks import float_blocks
from outdraft.models.files.published.linear import StoredLinear, require_part
from outdraft.nn.quant.blocks import BLOCKS, dequantize
from outdraft.options.errors import ModelLoadError
from outdraft.weights.source import TensorSource

_GROUPS = {"NVFP4": 16, "MXFP4": 32}
_NAN = {"NVFP4": 0x7F, "MXFP4": 0xFF}  # from this byte on a scale is no positive number


def four_bit_linear(source: TensorSource, stem: str, packed: str) -> StoredLinear:
    """The map whose weights are the tensor `packed`. Raises `ModelLoadError` for tensors that do not fit together."""
    scale, weight = f"{stem}.weight_scale", f"{stem}.{packed}"
    kind = "NVFP4" if scale in source and source.dtype_name(scale) == "F8_E4M3" else "MXFP4"
    num_out, num_bytes = source.shape(weight) if len(source.shape(weight)) == 2 else (0, 0)
    num_in = 2 * num_bytes
    require_part(source, scale, (num_out, num_in // _GROUPS[kind]), ("F8_E4M3", "U8", "F8_E8M0"))
    if num_in % BLOCKS[kind].weights:
        raise ModelLoadError(
            f"tensor '{weight}' in {source.origin} has {num_in} inputs, and outdraft reads {kind} in blocks of "
            f"{BLOCKS[kind].weights}: take the unquantized model, or a GGUF file"
        )
    parts, factor = [weight, scale], 1.0
    if kind == "NVFP4":
        divides = packed != "weight"
        name = f"{stem}.{'weight_global_scale' if divides else 'weight_scale_2'}"
        require_part(source, name, () if name in source and source.shape(name) == () else (1,), ("F32",))
        parts.append(name)
        factor = float(1 / source[name] if divides else source[name])
    if not 0 < factor < float("inf"):
        raise ModelLoadError(f"the factor of '{weight}' in {source.origin} is {factor}: download it again")

    def read() -> Tensor:
        scales = source[scale].view(torch.uint8)
        if bool((scales >= _NAN[kind]).any()):
            raise ModelLoadError(
                f"tensor '{scale}' in {source.origin} has a scale that is no positive number: download it again"
            )
        return float_blocks(source[weight], scales, kind)

    return StoredLinear(
        shape=(num_out, num_in),
        parts=tuple(parts),
        bits=4,
        read_floats=lambda: dequantize(read(), kind) * factor,
        read_blocks=read,
        floats=kind,
        factor=factor,
    )
