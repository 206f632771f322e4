"""Checkpoints of NVIDIA's Model Optimizer (`quant_method: modelopt`): NVFP4 and FP8.

    weight          uint8 [out, in / 2] with weight_scale e4m3 and weight_scale_2 (`fp4.py`)
                    F8_E4M3 [out, in] with weight_scale, one number or one an output (`fp8.py`)
    input_scale     of activations, which stay as they are here

Which maps are which is read off the tensors. Older files have their settings in
hf_quant_config.json (`settings.settings_beside`).
Layout: Model Optimizer, modelopt/torch/export/quant_utils.py (https://github.com/NVIDIA/TensorRT-Model-Optimizer).
"""

from outdraft.models.files.published.fp4 import four_bit_linear
from outdraft.models.files.published.fp8 import ACTIVATION_PARTS, float_linear
from outdraft.models.files.published.linear import Found
from outdraft.models.files.published.settings import Told, choose
from outdraft.weights.source import TensorSource


def read_modelopt(source: TensorSource, told: Told) -> Found:
    """Raises `ModelLoadError` for settings that are not read and tensors that do not fit together."""
    choose(told, ("quant_algo",), ("nvfp4", "w4a16_nvfp4", "fp8", "fp8_per_channel_per_token", "mixed_precision"))
    told.get("config_groups"), told.get("group_size")  # the tensors say it too
    maps = {}
    for name in source:
        stem, _, kind = name.rpartition(".")
        if kind == "weight" and f"{stem}.weight_scale" in source:
            is_four = source.dtype_name(name) == "U8"
            maps[stem] = four_bit_linear(source, stem, kind) if is_four else float_linear(source, stem, None)
    notes = ["activations are not rounded"] if any(name.endswith(".input_scale") for name in source) else []
    if told.get("kv_cache_scheme") or told.get("kv_cache_quant_algo"):
        notes.append("kv_cache_scheme is not used (kv_cache_dtype is outdraft's own)")
    return Found(name="modelopt", maps=maps, unread=ACTIVATION_PARTS, notes=tuple(notes))
