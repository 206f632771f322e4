"""Weights that transformers' own fine-grained FP8 rounded (`Fp8Quantize`), and made whole by its own `Fp8Dequantize`.

    python tests/peers/quantized/by_transformers.py tests/models/published/made

transformers 5.23.0, integrations/finegrained_fp8.py: the layout of DeepSeek-V3 and of Qwen's FP8 checkpoints.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import transformers
from tiny import config, maps, model, record
from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
from transformers.utils.quantization_config import FineGrainedFP8Config

OUT = Path(sys.argv[1])


def make(name, **settings):
    told = FineGrainedFP8Config(**settings)
    packed, whole = {}, {}
    for stem, linear in maps(model()).items():
        parts = Fp8Quantize(SimpleNamespace(quantization_config=told)).convert({f"{stem}.weight": linear.weight.data})
        packed |= parts
        made = {key.removeprefix(f"{stem}."): tensor for key, tensor in parts.items()}
        made["weight_scale_inv"] = made["weight_scale_inv"].float()
        whole[stem] = Fp8Dequantize(SimpleNamespace(quantization_config=told)).convert(made)["weight"]
    written = config().to_dict() | {"architectures": ["LlamaForCausalLM"], "quantization_config": told.to_dict()}
    record(OUT / name, f"transformers {transformers.__version__}", written, packed, whole)


make("transformers-fp8-blocks", weight_block_size=(32, 16))
make("transformers-fp8-blocks-ue8m0", weight_block_size=(32, 16), scale_fmt="ue8m0")
make("transformers-fp8-map", weight_block_size=None)
