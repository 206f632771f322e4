"""Weights in floats of 4 bits, packed and made whole again by compressed-tensors' own code.

    python tests/peers/quantized/by_compressed_tensors.py tests/models/published/made

compressed-tensors 0.20.0 (https://github.com/vllm-project/compressed-tensors).
"""

import sys
from importlib.metadata import version
from pathlib import Path

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.quantization import QuantizationScheme, preset_name_to_scheme
from compressed_tensors.quantization.lifecycle.forward import dequantize
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from tiny import config, maps, model, record

OUT = Path(sys.argv[1])


def make(name: str, preset: str, form: str) -> None:
    scheme = preset_name_to_scheme(preset, ["Linear"])
    args, compressor = scheme.weights, BaseCompressor.get_value_from_registry(form)
    packed, whole = {}, {}
    for stem, linear in maps(model()).items():
        weight = linear.weight.data
        groups = weight.unflatten(1, (-1, args.group_size))
        over = generate_gparam(weight.amin(), weight.amax()) if form.startswith("nvfp4") else None
        scale, _ = calculate_qparams(groups.amin(2), groups.amax(2), args, global_scale=over)
        parts = {"weight": weight, "weight_scale": scale} | ({} if over is None else {"weight_global_scale": over})
        parts = compressor.compress(parts, scheme)
        packed |= {f"{stem}.{part}": tensor.data for part, tensor in parts.items()}
        codes = unpack_fp4_from_uint8(parts["weight_packed"], *weight.shape, dtype=torch.float32)
        scale = compressor._decompress_scale(parts["weight_scale"], torch.float32)  # in bfloat16 as it is run
        whole[stem] = dequantize(x_q=codes, scale=scale, args=args, global_scale=over)
    told = {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": QuantizationScheme.model_dump(scheme, mode="json")},
        "ignore": ["lm_head"],
    }
    written = config().to_dict() | {"architectures": ["LlamaForCausalLM"], "quantization_config": told}
    record(OUT / name, f"compressed-tensors {version('compressed-tensors')}", written, packed, whole)


make("compressed-NVFP4", "NVFP4A16", "nvfp4-pack-quantized")
make("compressed-MXFP4", "MXFP4A16", "mxfp4-pack-quantized")
