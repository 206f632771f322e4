"""A model that Model Optimizer rounded and saved, made whole again by its own tensors.

    python tests/peers/quantized/by_modelopt.py WORK_FOLDER tests/models/published/made

NVIDIA's Model Optimizer 0.47.0 (https://github.com/NVIDIA/Model-Optimizer), on a CPU.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import modelopt.torch.quantization as mtq
import torch
import transformers
from modelopt.torch.export import export_hf_checkpoint
from modelopt.torch.quantization.qtensor import NVFP4QTensor
from tiny import GROUP, record, save_plain, saved, texts

WORK, OUT = Path(sys.argv[1]), Path(sys.argv[2])


def make(name: str, settings: dict) -> None:
    plain = save_plain(WORK / "plain")
    made = transformers.AutoModelForCausalLM.from_pretrained(plain, dtype=torch.bfloat16)
    made = mtq.quantize(made, settings, lambda model: [model(torch.tensor([ids])) for ids in texts()])
    export_hf_checkpoint(made, export_dir=WORK / name)
    written, packed = saved(WORK / name)
    whole = {}
    for stem in {one.rpartition(".")[0] for one in packed if one.endswith("weight_scale_2")}:
        weight = packed[f"{stem}.weight"]
        held = NVFP4QTensor(torch.Size((len(weight), 2 * weight.shape[1])), torch.float32, weight)
        scales = {"scale": packed[f"{stem}.weight_scale"], "double_scale": packed[f"{stem}.weight_scale_2"]}
        whole[stem] = held.dequantize(torch.float32, **scales, block_sizes={-1: GROUP // 2})
    record(OUT / name, f"nvidia-modelopt {version('nvidia-modelopt')}", written, packed, whole)


make("modelopt-NVFP4", mtq.NVFP4_DEFAULT_CFG)
