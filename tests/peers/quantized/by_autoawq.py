"""Weights packed by AutoAWQ's own `WQLinear_GEMM.from_linear`, and made whole again by its own `dequantize_gemm`.

    python tests/peers/quantized/by_autoawq.py UNPACKED_SOURCES_OF_autoawq tests/models/published/made

AutoAWQ (0.2.9, https://github.com/casper-hansen/AutoAWQ) is archived and its package asks for another transformers; its
sources (`pip download --no-deps --no-binary :all: autoawq`) are read in place, only the layer and what it calls.
"""

import sys
import types
from pathlib import Path

import torch

SOURCES, OUT = Path(sys.argv[1]), Path(sys.argv[2])
for name in ("awq", "awq.utils", "awq.modules", "awq.modules.linear"):  # without running their __init__
    package = types.ModuleType(name)
    package.__path__ = [str(SOURCES.joinpath(*name.split(".")))]
    sys.modules[name] = package

from awq.modules.linear.gemm import WQLinear_GEMM  # noqa: E402
from awq.utils.packing_utils import dequantize_gemm  # noqa: E402
from tiny import GROUP, WIDTH, config, maps, model, record  # noqa: E402

VERSION = SOURCES.name.rpartition("-")[2]


def make(name, group=GROUP):
    packed, whole = {}, {}
    size = WIDTH if group == -1 else group
    for stem, linear in maps(model()).items():
        num_in = linear.in_features
        parts = linear.weight.data.view(linear.out_features, num_in // size, size)
        low, high = parts.amin(2).clamp(max=0), parts.amax(2).clamp(min=0)
        scales = ((high - low) / 15).half().float()  # [out, groups]
        zeros = (-low / scales).round().clamp(0, 15)
        clipped = torch.nn.Linear(num_in, linear.out_features, bias=False)  # its own quantizer clips before it packs
        codes = ((parts / scales[..., None]).round() + zeros[..., None]).clamp(0, 15)
        clipped.weight.data = ((codes - zeros[..., None]) * scales[..., None]).view(linear.weight.shape)
        one = WQLinear_GEMM.from_linear(clipped, 4, size, scales=scales.t().contiguous(), zeros=zeros.t().contiguous())
        packed |= {f"{stem}.{part}": tensor for part, tensor in one.state_dict().items()}
        whole[stem] = dequantize_gemm(one.qweight, one.qzeros, one.scales.float(), 4, size).t()
    told = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": group,
        "version": "gemm",
        "zero_point": True,
        "modules_to_not_convert": None,
    }
    written = {**config().to_dict(), "architectures": ["LlamaForCausalLM"], "quantization_config": told}
    record(OUT / name, f"autoawq {VERSION}", written, packed, whole)


make("autoawq-4")
make("autoawq-4-whole", group=-1)
