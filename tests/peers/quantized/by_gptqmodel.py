"""Models that GPTQModel itself quantized and saved, and made whole again by its own `dequantize_weight`.

    GPTQMODEL_CPU_WORKERS=2 python tests/peers/quantized/by_gptqmodel.py WORK_FOLDER tests/models/published/made

GPTQModel 7.7.0 (https://github.com/ModelCloud/GPTQModel), the successor of AutoGPTQ that transformers loads
such checkpoints with. It subtracts and adds the 1 of `checkpoint_format` "gptq" in whole words, so that a zero point of
0 borrows from its neighbour and comes back.
"""

import sys
from pathlib import Path

import torch
from gptqmodel import BACKEND, GPTQModel, QuantizeConfig, __version__
from gptqmodel.nn_modules.qlinear import PackableQuantLinear
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from tiny import GROUP, record, save_plain, saved, texts

WORK, OUT = Path(sys.argv[1]), Path(sys.argv[2])


def whole_of(folder):
    loaded = GPTQModel.load(str(folder), device="cpu", backend=BACKEND.TORCH, dtype=torch.float16)
    found = {}
    for name, one in loaded.model.named_modules():
        if isinstance(one, TorchLinear):
            one.scales = one.scales.float()  # float16 would round what the kernels do not
            found[name] = PackableQuantLinear.dequantize_weight(one).t()
    return found


def make(name, **settings):
    plain = save_plain(WORK / "plain", torch.float16)
    quantized = GPTQModel.load(str(plain), QuantizeConfig(group_size=GROUP, **settings), device="cpu")
    quantized.quantize([{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in texts()], batch_size=1)
    quantized.save(str(WORK / name))
    written, packed = saved(WORK / name)
    record(OUT / name, f"gptqmodel {__version__}", written, packed, whole_of(WORK / name))


CASES = {
    "gptqmodel-4": dict(bits=4, sym=True, desc_act=False),
    "gptqmodel-4-zeros": dict(bits=4, sym=False, desc_act=False),
    "gptqmodel-4-zeros-v2": dict(bits=4, sym=False, desc_act=False, format="gptq_v2"),
    "gptqmodel-4-desc_act": dict(bits=4, sym=False, desc_act=True, act_group_aware=False),
    "gptqmodel-8-zeros": dict(bits=8, sym=False, desc_act=False),
}
for case in sys.argv[3:] or CASES:
    make(case, **CASES[case])
