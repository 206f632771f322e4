"""Weights in 8-bit floats (`quant_method: fp8`): e4m3 numbers, and a factor for a block, an output or the whole map.

    weight            F8_E4M3 [out, in]
    weight_scale_inv  [ceil(out / b0), ceil(in / b1)] with `weight_block_size` [b0, b1], or one number
    weight_scale      the same factor by its older name

A factor may be a power of two in a byte (`scale_fmt` ue8m0: F8_E8M0, or U8 with 127 added to the exponent).

weight[o, i] is the stored number times the factor of its block, in spite of the name. Layout: DeepSeek-V3,
inference/kernel.py (https://github.com/deepseek-ai/DeepSeek-V3), and transformers,
integrations/finegrained_fp8.py (https://github.com/huggingface/transformers). Activations stay as they are here.
"""

from torch import Tensor

from outdraft.models.files.published.linear import Found, StoredLinear, require_part
from outdraft.models.files.published.settings import Told, choose, refuse
from outdraft.options.errors import ModelLoadError
from outdraft.weights.source import TensorSource

SCALES = ("weight_scale_inv", "weight_scale")
FACTORS = ("F32", "BF16", "F16", "F8_E8M0", "U8")
ACTIVATION_PARTS = tuple(
    """
    .input_scale .input_global_scale .activation_scale .input_zero_point .output_scale .output_zero_point .k_scale
    .v_scale
    """.split()
)


def read_fp8(source: TensorSource, told: Told) -> Found:
    """Raises `ModelLoadError` for settings that are not read and tensors that do not fit together."""
    choose(told, ("fmt",), ("e4m3", "float8_e4m3fn"), "e4m3")
    block = block_of(told, "weight_block_size")
    maps = {}
    for name in source:
        stem, _, kind = name.rpartition(".")
        if kind == "weight" and source.dtype_name(name).startswith("F8"):
            maps[stem] = float_linear(source, stem, block)
    note = "activations are not rounded, as activation_scheme would have it" if told.get("activation_scheme") else ""
    return Found(name="fp8", maps=maps, unread=ACTIVATION_PARTS, notes=(note,) if note else ())


def block_of(told: Told, key: str) -> tuple[int, int] | None:
    """The block of a setting, [outputs, inputs]; None where there is none."""
    value = told.get(key)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(type(x) is int and x > 0 for x in value):
        raise refuse(told, key, "which is no pair of sizes")
    return value[0], value[1]


def float_linear(source: TensorSource, stem: str, block: tuple[int, int] | None) -> StoredLinear:
    """A map in e4m3 numbers. Raises `ModelLoadError` for factors that do not cover it."""
    name = f"{stem}.weight"
    shape, dtype = source.shape(name), source.dtype_name(name)
    scale = next((f"{stem}.{part}" for part in SCALES if f"{stem}.{part}" in source), None)
    if dtype != "F8_E4M3" or len(shape) != 2 or scale is None:
        raise ModelLoadError(
            f"tensor '{name}' in {source.origin} is {dtype} of shape {shape} "
            f"{'without a factor (weight_scale_inv)' if scale is None else 'with a factor'}; outdraft reads F8_E4M3 "
            "[out, in] with one: take the unquantized model, or a GGUF file"
        )
    require_cover(source, scale, (shape[0], shape[1]), block)
    require_part(source, scale, source.shape(scale), FACTORS)

    def read() -> Tensor:
        factors = source[scale].float()
        if source.dtype_name(scale) == "U8":
            factors = (factors - 127).exp2()
        return source[name].float() * spread(factors, (shape[0], shape[1]), block)

    return StoredLinear(shape=(shape[0], shape[1]), parts=(name, scale), bits=8, read_floats=read)


def require_cover(source: TensorSource, name: str, shape: tuple[int, int], block: tuple[int, int] | None) -> None:
    """Raise `ModelLoadError` for factors that are neither one, nor one a block, an output or a group."""
    found = source.shape(name)
    grouped = len(found) == 2 and found[0] == shape[0] and found[1] > 0 and shape[1] % found[1] == 0
    if not (found in ((), (1,), (1, 1), (shape[0],)) or grouped or found == _blocks(shape, block)):
        raise ModelLoadError(
            f"tensor '{name}' in {source.origin} has shape {found}, which does not cover a weight of shape {shape}"
            f"{f' in blocks of {block}' if block else ''}: download config.json and weights again, of one revision"
        )


def spread(scales: Tensor, shape: tuple[int, int], block: tuple[int, int] | None) -> Tensor:
    """Factors to the weight's rows and columns: something that multiplies with [out, in]."""
    if scales.numel() == 1:
        return scales.reshape(1, 1)
    if block is not None and tuple(scales.shape) == _blocks(shape, block):
        by_row = scales.repeat_interleave(block[0], 0)[: shape[0]]
        return by_row.repeat_interleave(block[1], 1)[:, : shape[1]]
    scales = scales.reshape(shape[0], -1)
    return scales.repeat_interleave(shape[1] // scales.shape[1], 1)


def _blocks(shape: tuple[int, int], block: tuple[int, int] | None) -> tuple[int, int] | None:
    """How many blocks cover a weight of this shape, each way."""
    return None if block is None else (-(-shape[0] // block[0]), -(-shape[1] // block[1]))
