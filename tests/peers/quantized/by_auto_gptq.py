"""Weights packed by AutoGPTQ's own `QuantLinear.pack`, and made whole again by its own `forward` on the unit matrix.

    python tests/peers/quantized/by_auto_gptq.py tests/models/published/made

AutoGPTQ (`pip install --no-deps auto-gptq`, 0.7.1, https://github.com/AutoGPTQ/AutoGPTQ) no longer imports beside a
current transformers, so only the file of its layer is loaded. Its zero points of 0 do not survive its own packing
(they become 16), so they are kept out here; `by_gptqmodel.py` has them.
"""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import torch
from tiny import GROUP, config, maps, model, record

OUT = Path(sys.argv[1])
VERSION = importlib.metadata.version("auto-gptq")
SETTINGS = {
    "quant_method": "gptq",
    "damp_percent": 0.01,
    "static_groups": False,
    "true_sequential": True,
    "model_name_or_path": None,
    "model_file_base_name": "model",
    "is_marlin_format": False,
}


def layer_class():
    path = importlib.metadata.distribution("auto-gptq").locate_file("auto_gptq/nn_modules/qlinear/qlinear_cuda.py")
    spec = importlib.util.spec_from_file_location("qlinear_cuda", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.QuantLinear


def grid(weight, bits, index, symmetric):
    """scales and zero points [out, groups] of min and max, as its quantizer finds them."""
    top, scales, zeros = 2**bits - 1, [], []
    for group in range(int(index.max()) + 1):
        own = weight[:, index == group]
        low, high = own.amin(1).clamp(max=0), own.amax(1).clamp(min=0)
        if symmetric:
            high = torch.maximum(-low, high)
            low = -high
        scale = ((high - low) / top).half().float()
        scales.append(scale)
        zeros.append(torch.full_like(scale, (top + 1) / 2) if symmetric else (-low / scale).round().clamp(1, top))
    return torch.stack(scales, 1), torch.stack(zeros, 1)


def make(name, bits=4, group=GROUP, symmetric=True, by_activation=False):
    layer = layer_class()
    packed, whole = {}, {}
    for stem, linear in maps(model()).items():
        num_in = linear.in_features
        size = num_in if group == -1 else group
        order = torch.arange(num_in)
        if by_activation:
            order = torch.randperm(num_in, generator=torch.Generator().manual_seed(len(packed)))
        index = torch.empty(num_in, dtype=torch.int32)
        index[order] = (torch.arange(num_in) // size).int()
        scales, zeros = grid(linear.weight.data, bits, index, symmetric)
        one = layer(bits, group, num_in, linear.out_features, False, weight_dtype=torch.float16)
        one.pack(linear, scales.clone(), zeros.clone(), index)
        packed |= {f"{stem}.{part}": tensor for part, tensor in one.state_dict().items()}
        one.scales = one.scales.float()
        whole[stem] = one(torch.eye(num_in)).t()
    told = {"bits": bits, "group_size": group, "sym": symmetric, "desc_act": by_activation}
    written = {**config().to_dict(), "architectures": ["LlamaForCausalLM"], "quantization_config": SETTINGS | told}
    record(OUT / name, f"auto-gptq {VERSION}", written, packed, whole)


make("auto_gptq-4")
make("auto_gptq-4-zeros", symmetric=False)
make("auto_gptq-4-desc_act", by_activation=True, symmetric=False)
make("auto_gptq-4-desc_act-whole", group=-1, by_activation=True)
make("auto_gptq-8", bits=8)
make("auto_gptq-8-zeros", bits=8, symmetric=False)
