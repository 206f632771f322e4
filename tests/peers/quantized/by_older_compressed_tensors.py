"""Weights packed by an older compressed-tensors, which moved inputs between groups (`actorder` "group").

    python tests/peers/quantized/by_older_compressed_tensors.py FOLDER_OF_compressed-tensors-0.10.2 \\
        tests/models/published/made

Newer releases dropped that order; checkpoints that have it stay. The package is installed beside, not in, the others
(`pip install --no-deps --target FOLDER compressed-tensors==0.10.2`).
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, sys.argv[1])
OUT = Path(sys.argv[2])

from compressed_tensors import __version__  # noqa: E402
from compressed_tensors.compressors.quantized_compressors.naive_quantized import NaiveQuantizationCompressor  # noqa: E402
from compressed_tensors.compressors.quantized_compressors.pack_quantized import PackedQuantizationCompressor  # noqa: E402
from compressed_tensors.quantization import QuantizationArgs  # noqa: E402
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize  # noqa: E402
from compressed_tensors.quantization.utils import calculate_qparams  # noqa: E402
from tiny import GROUP, config, maps, model, record  # noqa: E402


def make(name, form, **settings):
    args = QuantizationArgs(strategy="group", group_size=GROUP, **settings)
    kind = PackedQuantizationCompressor if form == "pack-quantized" else NaiveQuantizationCompressor
    packed, whole = {}, {}
    for stem, linear in maps(model()).items():
        weight, num_in = linear.weight.data, linear.in_features
        order = torch.randperm(num_in, generator=torch.Generator().manual_seed(len(packed)))
        index = torch.empty(num_in, dtype=torch.int32)
        index[order] = (torch.arange(num_in) // GROUP).int()
        own = weight[:, order].view(len(weight), -1, GROUP)
        scale, zero = calculate_qparams(own.amin(2), own.amax(2), args)
        scale = scale.bfloat16()
        parts = kind().compress_weight(
            weight, scale, quantization_args=args, zero_point=zero, g_idx=index, device=torch.device("cpu")
        )
        parts |= {"weight_scale": scale, "weight_g_idx": index}
        if not args.symmetric and "weight_zero_point" not in parts:
            parts["weight_zero_point"] = zero
        packed |= {f"{stem}.{part}": tensor for part, tensor in parts.items()}
        codes = quantize(x=weight, scale=scale, zero_point=zero, g_idx=index, args=args, dtype=torch.int8)
        whole[stem] = dequantize(x_q=codes, scale=scale.float(), zero_point=zero, g_idx=index)
    group = {"targets": ["Linear"], "weights": args.model_dump(mode="json"), "input_activations": None}
    told = {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group | {"output_activations": None}},
        "ignore": ["lm_head"],
    }
    written = config().to_dict() | {"architectures": ["LlamaForCausalLM"], "quantization_config": told}
    record(OUT / name, f"compressed-tensors {__version__}", written, packed, whole)


make("older_compressed-W4A16-moved", "pack-quantized", num_bits=4, type="int", symmetric=True, actorder="group")
make("older_compressed-W4A16-moved-zeros", "pack-quantized", num_bits=4, type="int", symmetric=False, actorder="group")
make("older_compressed-W8A16-moved", "int-quantized", num_bits=8, type="int", symmetric=True, actorder="group")
